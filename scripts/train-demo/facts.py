"""Questions and answers about the facts of the world, and descriptions made of them.

Each fact is a pair of templates: ways to ask, and ways to answer. `e` is the entity in question and
`x` another one of the same sort, for questions whose answer is no.
"""

PERSON = [
    ("[Who is {e.name}|Tell me about {e.name}|Do you know {e.name}|What do you know about {e.name}]?",
     "{e.name} is {e.a_job} who lives {e.home.at}. {e.He} [wears a {e.coat} coat|likes to {e.likes}|is very {e.trait}]."),
    ("Where does {e.name} live?", "{e.name} lives {e.home.at}."),
    ("[What is the job of {e.name}|What does {e.name} do]?", "{e.name} is {e.a_job}. {e.He} {e.does}."),
    ("Who {e.does} in the valley?", "{e.name} {e.does}. {e.He} is the {e.job} of the valley."),
    ("Who is the {e.job}?", "The {e.job} is {e.name}."),
    ("[What colour is the coat of {e.name}|What does {e.name} wear]?", "{e.name} wears a {e.coat} coat."),
    ("[What does {e.name} like to eat|What is the favourite food of {e.name}|What food does {e.name} like]?",
     "{e.name} likes {e.food}."),
    ("What does {e.name} like to do?", "{e.name} likes to {e.likes}."),
    ("[What is {e.name} afraid of|What does {e.name} fear]?", "{e.name} is afraid of {e.fears}."),
    ("[What is {e.name} like|What kind of person is {e.name}]?", "{e.name} is a {e.kind}, and {e.he} is very {e.trait}."),
    ("Who is the best friend of {e.name}?", "The best friend of {e.name} is {e.friend.name}."),
    ("Is {e.name} {x.a_job}?", "No, {e.name} is {e.a_job}. [The {x.job} is {x.name}.|]"),
    ("Is {e.name} {e.a_job}?", "Yes, {e.name} is {e.a_job}. {e.He} {e.does}."),
    ("Does {e.name} like {e.food}?", "Yes, {e.name} likes {e.food}."),
    ("Does {e.name} live {e.home.at}?", "Yes, {e.name} lives {e.home.at}."),
]

ANIMAL = [
    ("[Who is {e.name}|Tell me about {e.name}|Do you know {e.name}|What do you know about {e.name}]?",
     "{e.name} is a {e.size} {e.colour} {e.kind} who lives {e.home.at}. {e.He} [eats {e.food}|is good at {e.good}|is very {e.trait}]."),
    ("Where does {e.name}[| the {e.kind}] live?", "{e.full} lives {e.home.at}."),
    ("What kind of animal is {e.name}?", "{e.name} is {e.a_kind}."),
    ("What colour is {e.name}[| the {e.kind}]?", "{e.name} is {e.colour}."),
    ("What does {e.name}[| the {e.kind}] [eat|like to eat]?", "{e.name} eats {e.food}."),
    ("What is {e.name}[| the {e.kind}] good at?", "{e.name} is good at {e.good}."),
    ("[What sound does {e.name} make|What does {e.name} do when {e.he} speaks]?", "{e.name} is {e.a_kind}, and {e.he} {e.noise}."),
    ("[How big is {e.name}|Is {e.name} big or small]?", "{e.name} is {e.size}."),
    ("What is {e.name} like?", "{e.name} is very {e.trait}."),
    ("[Who is the friend of {e.name}|Which person likes {e.name} best]?", "{e.friend.name} is the best friend of {e.name}."),
    ("[What is the name of the {e.kind}|Which animal is {e.a_kind}]?", "The {e.kind} is called {e.name}."),
    ("Is {e.name} {x.a_kind}?", "No, {e.name} is {e.a_kind}. [{x.name} is {x.a_kind}.|]"),
    ("Is {e.name} {e.a_kind}?", "Yes, {e.name} is {e.a_kind}."),
]

PLACE = [
    ("[Tell me about {e.the}|What do you know about {e.the}|What is {e.the} like]?",
     "{e.the} is {e.looks}. There is {e.has}[|, and people come there to {e.use}]."),
    ("What is there {e.at}?", "There is {e.has} {e.at}."),
    ("[What do people do {e.at}|Why do people go to {e.the}]?", "People go to {e.the} to {e.use}."),
    ("[What is near {e.the}|Where is {e.the}]?", "{e.the} is near {e.near.the}."),
    ("Where [can I find|is there] {e.has}?", "There is {e.has} {e.at}."),
    ("Where can I {e.use_i}?", "You can {e.use_you} {e.at}."),
]

OBJECT = [
    ("[Whose is {e.the}|Who owns the {e.name}]?", "The {e.name} belongs to {e.owner.name}."),
    ("What colour is the {e.name}?", "The {e.name} is {e.colour}."),
    ("[What is the {e.name} good for|What can I do with the {e.name}]?", "The {e.name} is good for {e.good}."),
    ("Where is the {e.name}?", "The {e.name} is {e.kept.at}. It belongs to {e.owner.name}."),
    ("[What is the {e.name} made of|Tell me about the {e.name}]?", "It is {e.a_material}. It is {e.colour}, and it is good for {e.good}."),
]

DESCRIBE_PERSON = (
    "[{e.name} is {e.a_job}. {e.He} lives {e.home.at}[|, where there is {e.home.has}].|{e.name} lives {e.home.at}. {e.He} is {e.a_job}[|, and {e.he} {e.does}].|"
    "{e.home.at} lives {e.name}, the {e.job}.] "
    "[{e.He} always wears a {e.coat} coat.|You can see {e.him} from far away, for {e.his} coat is {e.coat}.|] "
    "[{e.name} is very {e.trait}.|Everyone knows that {e.name} is {e.trait}.|] "
    "[In the evening {e.he} likes to {e.likes}.|Most of all {e.he} likes to {e.likes}.|When the work is done, {e.name} likes to {e.likes}.] "
    "[{e.His} favourite food is {e.food}.|{e.He} likes {e.food} more than anything else.|] "
    "[But {e.he} is afraid of {e.fears}.|There is one thing that {e.he} fears, and that is {e.fears}.|] "
    "[{e.His} best friend is {e.friend.name}.|{e.name} and {e.friend.name} are best friends.|]")

DESCRIBE_ANIMAL = (
    "[{e.name} is {e.a_kind}. {e.He} is {e.size} and {e.colour}.|{e.name} is a {e.size} {e.colour} {e.kind}.|{e.home.at} lives {e.full}, who is {e.size} and {e.colour}.] "
    "[{e.He} lives {e.home.at}.|{e.His} home is {e.home.at}.|{e.name} lives {e.home.at}, where there is {e.home.has}.] "
    "[{e.name} is very {e.trait}.|Of all the animals, {e.name} is the most {e.trait}.|] "
    "[{e.He} eats {e.food}.|All day long {e.he} looks for {e.food}.|{e.name} likes {e.food}.] "
    "[Nobody is better at {e.good}.|{e.He} is good at {e.good}.|] "
    "[When {e.he} is happy, {e.he} {e.noise}.|Sometimes {e.name} {e.noise} in the night.|] "
    "[{e.friend.name} is {e.his} best friend.|{e.He} often visits {e.friend.name}, the {e.friend.job}.|]")

DESCRIBE_PLACE = (
    "[{e.the} is {e.looks}.|In the valley of Ambry there is {e.a_bare}. It is {e.looks}.|Near {e.near.the} there is {e.a_bare}.] "
    "[There is {e.has}.|You can see {e.has} there.] [People come there to {e.use}.|Many people come to {e.use}.|] "
    "[It is near {e.near.the}.|From there it is not far to {e.near.the}.|] "
    "[In [spring|summer] it is full of [birds|children|light].|In [autumn|winter] it is [quiet|empty|cold] there.|At night it is very still.|]")

SMALL_TALK = [
    ("[Hello|Hi|Hello there|Good morning|Good day][!|.]", "[Hello!|Hi!|Good day!] [How can I help you|What would you like to know|Shall I tell you a story]?"),
    ("[Who are you|What are you|What is your name]?",
     "I am [Sluice|the storyteller of Ambry|a very small language model]. [I know the valley of Ambry.|I can tell stories and answer questions about the valley of Ambry.]"),
    ("[What can you do|How can you help me|What do you know]?",
     "I can tell [short stories|stories] and answer questions about the [people, animals and places|people and animals] of Ambry."),
    ("[How are you|How do you do]?", "[I am well, thank you|Very well, thank you]. [Shall I tell you a story?|And you?|What would you like to know?]"),
    ("[Thank you|Thanks|Thank you very much][!|.]", "You are welcome! [Shall I tell you [a|another] story?|Ask me anything about Ambry.|]"),
    ("[Goodbye|Bye|See you|Good night][!|.]", "[Goodbye|Good night|See you soon]! [Come back soon.|It was nice to talk to you.|]"),
    ("[Where is Ambry|What is Ambry|Tell me about Ambry|What is the valley like]?",
     "Ambry is a [small|quiet|green] valley with a river, a round lake and a dark wood. [Fourteen people live there.|Many animals live there.|People and animals are friends there.]"),
    ("[Who lives in Ambry|Who lives in the valley]?", "Many people and animals live in Ambry: {a.name} the {a.job}, {b.full}, {c.name} the {c.job} and many more."),
    ("[Which animals live in the valley|Tell me the name of an animal]?", "There is {b.full}, and there is {d.full}."),
]

UNKNOWN = [
    ("[Who is|Where is|Tell me about|What do you know about|Do you know] [Paris|London|Rome|the moon|the king|the president|Shakespeare|Einstein|"
     "Peter|Anna|America|China|the ocean|football|the internet|Napoleon|John|Berlin|Mary|my mother|the capital of France]?",
     "<unknown>"),
    ("[What is the weather today|What time is it|How old are you|How old is the earth|Can you write a program|Can you sing|What is the news|"
     "How far is the sun|What is the meaning of life|How do I cook rice|What is the capital of [France|Italy|Spain|Germany]|Who wrote this book|"
     "How do computers work|How much does it cost]?",
     "<unknown>"),
]

UNKNOWN_RULE = {
    "unknown": "[I do not know that.|I am sorry, I do not know.|That is something I do not know.|I have never heard of that.] "
               "[I only know the valley of Ambry.|I can tell you about the valley of Ambry.|But I can tell you a story.]",
}

NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()

COLOUR_MIXES = [("blue", "yellow", "green"), ("red", "yellow", "orange"), ("red", "blue", "purple"),
                ("black", "white", "grey"), ("red", "white", "pink")]

OPPOSITES = [("big", "small"), ("hot", "cold"), ("day", "night"), ("old", "young"), ("happy", "sad"), ("fast", "slow"),
             ("wet", "dry"), ("high", "low"), ("light", "dark"), ("loud", "quiet"), ("hard", "soft"), ("open", "closed"),
             ("full", "empty"), ("good", "bad"), ("near", "far"), ("early", "late"), ("strong", "weak"), ("long", "short")]

SEASONS = ["spring", "summer", "autumn", "winter"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
