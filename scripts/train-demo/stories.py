"""The plots of the stories and the phrases they share.

In a plot `h` is the hero, `f` somebody who helps, `g` a third one, `o` a thing, `p` and `q` two
places. A plot is a template and the questions that a reader can answer from its story.
"""

RULES = {
    "about": "a [|short |nice |good ]story[| about {h.name}| about {h.full}| about {h.a_kind}| about {h.name} and {f.name}| about {o.a}]",
    "once": "[Once upon a time|Once upon a time|One [morning|afternoon|evening|day]|Long ago|"
            "On a [warm|cold|bright|windy|quiet] [morning|afternoon|evening]|Last [spring|summer|autumn|winter]]",
    "intro": "[<once>, <who>.|<once> there was <who_long>.|There once was <who_long>.]",
    "who": "{h.full} [was|sat|stood] {p.at}",
    "who_long": "[{h.a_trait} {h.kind} [called|named] {h.name}[| who lived {h.home.at}]|"
                "a {h.kind} [called|named] {h.name}[| who was very {h.trait}| who lived {h.home.at}]]",
    "day": "[The sun was [shining|high|warm].|The sky was [blue|grey|clear|full of clouds].|"
           "A [soft|cool|strong] wind was blowing.|It was a [fine|quiet|busy] day in the valley.|"
           "The air smelled of [rain|grass|roses|fresh bread].|]",
    "go": "[{h.name} went|{h.He} walked|{h.name} walked|So {h.he} went|{h.He} ran|{h.name} set out]",
    "see": "[the place was {p.looks}|there was {p.has}|people came there to {p.use}]",
    "look": "[The place was {p.looks}.|There was {p.has} there.|People came there to {p.use}.|]",
    "sad": "[{h.name} was [very |]sad.|{h.name} felt like crying.|{h.name} had tears in {h.his} eyes.|"
           "{h.name} had a heavy heart.|{h.name} sighed.]",
    "glad": "[{h.name} was [very |so |]happy.|{h.name} laughed with joy.|{h.name} smiled from ear to ear.|"
            "{h.name} felt light and free.|{h.name} danced for joy.|{h.name} had never been so glad.]",
    "meet": "[On the way {h.he} met {f.full}.|Then {f.full} came along.|Just then {f.full} came by.|"
            "Soon {h.he} saw {f.full}.|After a while {f.full} came down the path.|Near {q.the} {h.he} met {f.full}.]",
    "ask": '["What is wrong?" asked {f.name}.|"Why are you so sad?" asked {f.name}.|'
           '"What is the matter?" said {f.name}.|{f.name} asked, "can I help you?"|"Are you all right?" asked {f.name}.]',
    "offer": '["Do not worry," said {f.name}. "[we will do it together|I will help you|I know what to do]."|'
             '"I can help," said {f.name}.|{f.name} said, "let us think about it."|'
             '{f.name} thought for a moment. "[I have an idea|Come with me|Follow me]," {f.he} said.]',
    "thanks": '["Thank you, {f.name}!" said {h.name}.|"Thank you so much," {h.he} said.|'
              '{h.name} thanked {f.name} [with all {h.his} heart|again and again].|'
              '"You are a true friend," said {h.name}.|"I could not have done it without you," said {h.name}.]',
    "welcome": '["You are welcome," said {f.name}.|"That is what friends are for," said {f.name}.|'
               '{f.name} [smiled|laughed|nodded].|"It was nothing," said {f.name}.|]',
    "share": "[{h.name} gave {f.name} some of {h.his} {h.food}.|They sat down and shared some {h.food}.|"
             "Then they ate {h.food} together.|They had {h.food} for supper.|]",
    "h_food": "[{h.name} loved {h.food}.|{h.His} favourite food was {h.food}.|]",
    "end": "[From that day on, {h.name} and {f.name} were [good|best|close] friends.|"
           "That night {h.name} slept [well|very well|deep and long].|"
           "{h.name} never forgot that day.|And they all went home happy.|"
           "{h.name} went home [with a smile|before dark|singing a song].|"
           "It was a day to remember.|When the stars came out, everyone in the valley was asleep.|"
           "And that is how it was in the valley of Ambry.]",
    "learned": "[{h.name} learned that {lesson}.|So {h.name} learned that {lesson}.|"
               "Now {h.he} knew that {lesson}.|And so {h.he} found out that {lesson}.]",
    "close": "[<learned> <end>|<learned>|<end>|<end>]",
    "walk": "[They walked [past|to] {q.the}.|They went down the path together.|Side by side they walked on.|"
            "They hurried [on|along the path].|]",
    "look_for": "[First they looked {p.at}, but they found nothing.|They looked [under the leaves|behind the trees|"
                "behind the stones|in the tall grass], but it was not there.|They looked high and low.|"
                "They looked everywhere for a long time.]",
    "weather": "[dark clouds came|it began to rain|a storm came up|the wind grew strong|fog came over the hills]",
}

LESSONS = {
    "help": ["two can do more than one", "a friend is worth more than gold", "it is good to ask for help",
             "kind words cost nothing"],
    "brave": ["being brave means going on when you are afraid", "even small ones can do great things",
              "the dark is not so bad with a friend"],
    "share": ["sharing makes everything better", "a gift makes two people happy",
              "there is always enough for two"],
    "work": ["good work takes time", "practice makes things easy", "one step at a time is fast enough"],
    "true": ["it is best to tell the truth", "saying sorry mends a lot", "friends forgive each other"],
}

# name -> (kind of lesson, who may be the hero, template, questions)
PLOTS = {}

PLOTS["lost"] = ("help", "any", (
    "<intro> <day> {h.name} had {o.a}, and {h.he} [took it everywhere|loved it very much|was very proud of it]. "
    "[But one day|That day|But then] the {o.name} was gone! {h.name} looked [everywhere|all over the place|here and there] "
    "{p.at}, but {h.he} could not find it. <sad>\n"
    '<meet> <ask> "[I have lost my {o.look}|My {o.look} is gone|I cannot find my {o.look}]," said {h.name}. <offer> '
    "<walk> <look_for> [At last|Then|In the end] they came to {q.the}. [There, [beside|under|behind] {q.has}, lay {o.the}!|"
    '"Look!" cried {f.name}. There was {o.the}, [beside|under|behind] {q.has}.|{f.name} saw something {o.colour}. It was the {o.name}!]\n'
    "<glad> <thanks> <welcome> <share> <close>"),
    [("What did {h.name} lose?", "[{h.name} lost {o.the}.|{h.He} lost {o.the}.]"),
     ("Who helped {h.name}?", "{f.full} helped {h.name}."),
     ("Where was the {o.name}?", "The {o.name} was {q.at}."),
     ("What colour was the {o.name}?", "The {o.name} was {o.colour}."),
     ("Why was {h.name} sad?", "{h.name} was sad because the {o.name} was gone.")])

PLOTS["gift"] = ("share", "any", (
    "<intro> <day> It was the birthday of {f.name}, and {h.name} wanted to give {f.him} [a gift|something nice|a present]. "
    '"What would {f.name} like?" {h.he} [thought|asked {h.himself}]. [{h.name} had no money.|{h.name} did not know.|{h.He} thought for a long time.] '
    "<go> to {q.the} to ask {g.full}. "
    '"[{f.name} likes {f.food}|{f.name} would love {o.a}]," said {g.name}. "But the best gift is one that you choose yourself."\n'
    "[So|Then|At last] {h.name} [took|found|bought] {o.a}, and {h.he} wrapped it in [a big leaf|blue paper|a soft cloth]. "
    "Then {h.he} went to {f.home.the}, where {f.name} lived. "
    '"Happy birthday!" [said|cried] {h.name}. {f.name} opened the gift. "{o.a}!" {f.he} cried. "It is good for {o.good}. [Thank you|How kind of you]!"\n'
    "[They played with the {o.name} until the evening.|Then they ate {f.food} together.|{f.name} was the happiest {f.kind} in the valley.] "
    "<glad> <close>"),
    [("Whose birthday was it?", "It was the birthday of {f.name}."),
     ("What did {h.name} give to {f.name}?", "{h.name} gave {o.a} to {f.name}."),
     ("Whom did {h.name} ask?", "{h.name} asked {g.full}."),
     ("Where did {f.name} live?", "{f.name} lived {f.home.at}.")])

PLOTS["storm"] = ("brave", "any", (
    "<intro> [{h.name} had walked to {q.the}.|That day {h.name} was alone.] {h.name} was [on the way home|looking for {h.food}|walking slowly] when <weather>. "
    "[Soon it was dark.|The rain fell hard.|The trees shook in the wind.|{h.name} could hardly see the path.] "
    "{h.name} was [afraid|cold and wet|far from home]. "
    '"[I must find a dry place|Where can I hide|I want to go home]," {h.he} thought. '
    "[Then {h.he} heard a voice.|Then {h.he} saw a small light.|Then somebody called.] "
    'It was {f.full}. "[Come in, come in|Come here|Quick, come with me]!" [called|cried] {f.name}. "[It is dry here|You can stay with me|You must be cold]."\n'
    "[They sat close together|They waited together] {q.at}. {f.name} [told a story|sang an old song|lit a small fire], "
    "and they ate {f.food}. [Outside the storm went on and on.|The thunder rolled over the hills.|The wind howled, but they were warm.] "
    '"Are you still afraid?" asked {f.name}. "[No|Not any more|Only a little]," said {h.name}. '
    "[In the morning|After an hour|At last] the storm was over and the sun [came out|was shining]. <thanks> <welcome> <close>"),
    [("Who helped {h.name}?", "{f.full} helped {h.name}."),
     ("Where did they wait?", "They waited {q.at}."),
     ("What did they eat?", "They ate {f.food}."),
     ("Why was {h.name} afraid?", "{h.name} was afraid of the storm.")])

PLOTS["stuck"] = ("help", "any", (
    "<intro> <day> [Suddenly|Then] {h.he} heard a small voice. "
    '"Help! Help!" it cried. {h.name} ran to {q.the}. There was {f.full}, who had [fallen into a hole|got stuck between two stones|'
    "got stuck in the mud|got caught in a thorn bush]. "
    '"[I cannot get out|I am stuck|Please help me]," said {f.name}. '
    "{h.name} pulled [hard|with all {h.his} strength], but [it was no use|{f.name} did not move]. "
    "[{h.He} thought for a moment.|{h.He} looked around.|Then {h.he} had an idea.] "
    '"[Wait here|I will be back soon|I will fetch help]," said {h.name}, and {h.he} ran to get {g.full}.\n'
    "{g.name} came at once and brought {o.a}. [Together they pulled and pulled.|They pulled together, one, two, three!|"
    "{h.name} pulled in front and {g.name} pushed from behind.] "
    "[Pop!|At last|All at once] {f.name} was free! "
    '"Thank you, {h.name}! Thank you, {g.name}!" said {f.name}. "[I was so afraid|I thought I would be here all night|You are true friends]." '
    "[Then they all went to {f.home.the} and ate {f.food}.|All three of them laughed.|{f.name} gave them some {f.food}.] <close>"),
    [("Who was stuck?", "{f.full} was stuck."),
     ("Whom did {h.name} fetch?", "{h.name} fetched {g.full}."),
     ("What did {g.name} bring?", "{g.name} brought {o.a}."),
     ("Where was {f.name} stuck?", "{f.name} was stuck {q.at}.")])

PLOTS["race"] = ("work", "any", (
    '<intro> {f.full} was there too. "[I am faster than you|I bet I can beat you|Nobody is as fast as I am]," said {f.name}. '
    '"[Let us have a race|Then let us race|We will see about that]," said {h.name}. "From {p.the} to {q.the}!" '
    "{g.full} [was the judge|counted to three|gave the sign]. \"One, two, three, go!\"\n"
    "{f.name} ran [away like the wind|as fast as {f.he} could] and was soon far ahead. {h.name} was [slow but steady|not so fast|far behind]. "
    "[Halfway there|After a while|Near the end], {f.name} [stopped to eat some {f.food}|lay down to rest|looked back and laughed|stopped to talk to a friend]. "
    "But {h.name} [did not stop|went on, step by step|kept running]. "
    "[When {f.name} looked up, it was too late.|{f.name} ran as fast as {f.he} could, but it was too late.] "
    '{h.name} was the first {q.at}! "{h.name} is the winner!" [cried|called] {g.name}. '
    "[{h.name} got {o.a} as a prize.|The prize was {o.a}.|{g.name} gave {h.him} {o.a}.]\n"
    '"[You ran well|I should not have laughed|Next time I will not stop]," said {f.name}. <glad> <close>'),
    [("Who won the race?", "{h.full} won the race."),
     ("Who was the judge?", "{g.full} was the judge."),
     ("What was the prize?", "The prize was {o.a}."),
     ("Where did the race end?", "The race ended {q.at}.")])

PLOTS["quarrel"] = ("true", "any", (
    "<intro> {h.name} and {f.name} were [good|old|best] friends, but that day they both wanted {o.the}. "
    '"[It is mine|I had it first|Give it to me]!" [said|cried] {h.name}. "[No, it is mine|No, I saw it first|I will not]!" said {f.name}. '
    "They pulled and pulled, and [then|suddenly] the {o.name} [broke|fell into the mud|fell into the water]. "
    "[{f.name} went away.|{f.name} ran home.|They did not speak to each other.] <sad>\n"
    '{h.name} went to {g.full} and told {g.him} everything. "[What should I do|What can I do|How can I make it good again]?" {h.he} asked. '
    '"[Say that you are sorry|Go to {f.name} and say sorry|A friend is worth more than {o.a_name}]," said {g.name}. '
    "So {h.name} went to {f.home.the}, where {f.name} lived. "
    '"I am sorry," said {h.name}. "I am sorry too," said {f.name}. '
    "[Together they mended the {o.name}.|They cleaned the {o.name} together.|Then they played together.] "
    "[Now it belonged to both of them.|After that they always took turns.|They shared it from then on.] <glad> <close>"),
    [("What did they both want?", "They both wanted {o.the}."),
     ("Whom did {h.name} ask?", "{h.name} asked {g.full}."),
     ("What did {h.name} say to {f.name}?", '{h.name} said, "I am sorry."'),
     ("Where did {f.name} live?", "{f.name} lived {f.home.at}.")])

PLOTS["learn"] = ("work", "human", (
    "<intro> {h.name} was {h.a_job}, but {h.he} wanted to learn something new. "
    '"I want to {skill}," {h.he} said. [Everyone laughed.|But it was not easy.|Nobody knew how.] '
    "[{h.He} tried once, and it went wrong.|The first day everything went wrong.|{h.name} tried and tried, but it did not work.] "
    '"[I will never learn it|It is too hard|I give up]," said {h.name}. <sad>\n'
    '<meet> "I will teach you," said {f.name}. [Every day|Every morning|Every evening] they met {q.at}. '
    "[{f.name} was very patient.|{f.name} showed {h.him} how to do it.|Slowly, {h.name} got better.] "
    "[After a week|After a month|One day], {h.name} [could do it|did it all alone|made no more mistakes]. "
    '"Look at me!" [cried|called] {h.name}. "I can {skill}!" [Everyone clapped.|Everyone came to see it.|{g.full} clapped and cheered.] '
    "<glad> <thanks> <close>"),
    [("What did {h.name} want to learn?", "{h.name} wanted to learn to {skill}."),
     ("Who taught {h.name}?", "{f.full} taught {h.name}."),
     ("Where did they meet?", "They met {q.at}."),
     ("What was the job of {h.name}?", "{h.name} was {h.a_job}.")])

PLOTS["meal"] = ("share", "any", (
    "<intro> <h_food> That day {h.name} [was very hungry|had nothing to eat|woke up hungry], but [there was no {h.food} at home|the cupboard was empty]. "
    "<go> to {q.the} to look for some. <meet> "
    '"[Where are you going|What are you looking for]?" asked {f.name}. "I am looking for {h.food}," said {h.name}. "I am so hungry." '
    '"I only have {f.food}," said {f.name}. "[But we can share it|But you can have half|But there is enough for two]." '
    "They sat down and ate. It was [not bad|very good|better than {h.he} had thought].\n"
    "[The next day|A week later|The day after], {h.name} [had|found|got] a whole [basket|bag|bowl] of {h.food}. "
    "[First {h.he} wanted to keep it all.|{h.He} could have eaten it all alone.|It smelled wonderful.] "
    "But {h.he} thought of {f.name}. [So {h.he} went|{h.He} went|{h.name} ran] to {f.home.the}, where {f.name} lived. "
    '"[Now I will share with you|This is for both of us|Today you are my guest]," said {h.name}. {f.name} was [very happy|surprised and glad]. <close>'),
    [("What did {h.name} look for?", "{h.name} looked for {h.food}."),
     ("Who shared with {h.name}?", "{f.full} shared with {h.name}."),
     ("What did {f.name} have?", "{f.name} had {f.food}."),
     ("Where did {f.name} live?", "{f.name} lived {f.home.at}.")])

PLOTS["broken"] = ("work", "any", (
    "<intro> <day> {h.name} had borrowed {o.the} from {o.owner.name}. It was good for {o.good}. "
    "But {h.name} [was not careful|dropped it|slipped on a stone], and the {o.name} broke. "
    '"Oh no!" [cried|said] {h.name}. "What will {o.owner.name} say?" '
    "[First {h.he} wanted to hide it.|{h.He} wanted to run away.|{h.name} did not know what to do.] <sad>\n"
    '<meet> <ask> {h.name} showed {f.him} the {o.name}. "[We can mend it|I will help you to mend it|It is not so bad]," said {f.name}. '
    "They worked [all day|until the evening|for three hours] {q.at}. "
    "[At last it was whole again.|In the end it looked like new.|When they were done, it was better than before.] "
    "Then {h.name} went to {o.owner.name} and told {o.owner.him} [the truth|everything]. "
    '"[I broke it, but we mended it|I am sorry that I broke it]," {h.he} said. '
    '{o.owner.name} was not angry. "[Thank you for telling me|It looks better than before|You are honest, and that is what counts]," {o.owner.he} said. <glad> <close>'),
    [("What broke?", "The {o.name} broke."),
     ("Whose {o.name} was it?", "It was the {o.name} of {o.owner.name}."),
     ("Who helped {h.name}?", "{f.full} helped {h.name}."),
     ("Where did they mend it?", "They mended it {q.at}.")])

PLOTS["fear"] = ("brave", "human", (
    "<intro> {h.name} was {h.trait}, but {h.he} was afraid of {h.fears}. "
    "[Nobody knew about it.|{h.He} did not tell anyone.|The others laughed about it.] "
    "[One evening|One day|That night] {h.name} had to go to {q.the}, [all alone|and it was getting late]. "
    '{h.His} heart beat fast. "[What if something happens|I cannot do it|I want to go home]," {h.he} thought. '
    '<meet> <ask> "I am afraid of {h.fears}," said {h.name}. {f.name} did not laugh. '
    '"[Everyone is afraid of something|I am sometimes afraid too|That is nothing to be ashamed of]," {f.he} said. "[Take my hand|Let us go together|Come, I will go with you]."\n'
    "[They walked slowly and talked.|They counted their steps.|They sang a song all the way.] "
    "[Nothing bad happened.|And nothing happened at all.|It was not so bad.] "
    "Soon they were {q.at}. [There was {q.has}.|The place was {q.looks}.] "
    '"[You did it|See, you did it|How brave you are]!" said {f.name}. <glad> <thanks> <close>'),
    [("What was {h.name} afraid of?", "{h.name} was afraid of {h.fears}."),
     ("Who went with {h.name}?", "{f.full} went with {h.name}."),
     ("Where did they go?", "They went to {q.the}.")])

PLOTS["secret"] = ("help", "any", (
    "<intro> <day> {h.name} found {o.a} {p.at}. [{h.He} had never seen it before.|It was old and dusty.|It shone in the light.] "
    '"Whose {o.name} is this?" {h.he} asked {h.himself}. {h.name} wanted to find the owner. '
    '<go> to {f.full}. "Is this your {o.name}?" asked {h.name}. "No," said {f.name}. "[Ask {g.name}|Maybe {g.name} knows|{g.name} knows such things]." '
    'So {h.name} went to {g.full}. "[I know that {o.name}|I have seen it before|Let me look at it]," said {g.name}. "It belongs to {o.owner.name}."\n'
    "{h.name} took the {o.name} to {o.owner.home.the}, where {o.owner.name} lived. "
    '"My {o.name}!" [cried|said] {o.owner.name}. "[I have looked for it for days.|I thought it was gone for ever.|Where did you find it?]" '
    '"It was {p.at}," said {h.name}. {o.owner.name} [gave {h.him} some {o.owner.food}|thanked {h.him} with all {o.owner.his} heart|was very happy]. <glad> <close>'),
    [("What did {h.name} find?", "{h.name} found {o.a}."),
     ("Whose {o.name} was it?", "It was the {o.name} of {o.owner.name}."),
     ("Where did {h.name} find the {o.name}?", "{h.name} found it {p.at}."),
     ("Who knew the {o.name}?", "{g.full} knew the {o.name}.")])

SKILLS = ["swim", "bake bread", "ride a horse", "row a boat", "read the stars", "play the drum",
          "walk on a rope", "make a kite", "whistle", "paint a picture", "mend a clock", "skate on the ice"]
