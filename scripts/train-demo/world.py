"""The valley of Ambry: its people, animals, places and things, each with facts that never change.

Everything here was made up for the demonstration model. A table is one row for each entity; `load`
turns the rows into entities and links the names in them to the entities they mean.
"""

from types import SimpleNamespace

# name | kind | job | what the job is | home | coat | food | likes to | fears | trait | best friend
PEOPLE = """
Mina   | girl  | painter        | paints pictures       | mill       | yellow | plum cake      | draw birds         | thunder     | curious  | Pim
Tobin  | boy   | shepherd       | looks after the sheep | farm       | brown  | cheese         | play the flute     | the dark    | quiet    | Lotta
Lotta  | girl  | bell ringer    | rings the bell        | school     | red    | pancakes       | climb trees        | big dogs    | brave    | Tobin
Pim    | boy   | letter carrier | carries the letters   | bridge     | blue   | apple pie      | run fast           | deep water  | cheerful | Mina
Nell   | girl  | apple seller   | sells apples          | market     | green  | honey bread    | count things       | spiders     | clever   | Jonas
Jonas  | boy   | kite maker     | makes kites           | hill       | white  | pea soup       | watch the clouds   | loud noises | patient  | Nell
Oskar  | man   | baker          | bakes the bread       | bakery     | white  | potato soup    | sing old songs     | wasps       | jolly    | Bruno
Greta  | woman | farmer         | grows the corn        | farm       | brown  | carrot stew    | ride the cart      | storms      | strong   | Vera
Hugo   | man   | fisher         | catches fish          | lake       | grey   | fried fish     | tell stories       | ghosts      | calm     | Anton
Ida    | woman | teacher        | teaches the children  | school     | blue   | cherry jam     | read poems         | mice        | kind     | Selma
Bruno  | man   | miller         | grinds the corn       | mill       | grey   | warm rolls     | play chess         | fire        | slow     | Oskar
Selma  | woman | librarian      | lends the books       | library    | purple | ginger cookies | drink tea          | dust        | wise     | Ida
Anton  | man   | lamp keeper    | lights the lamps      | lighthouse | black  | bean soup      | look at the stars  | fog         | careful  | Hugo
Vera   | woman | gardener       | grows the roses       | garden     | green  | berry tart     | talk to the plants | frost       | gentle   | Greta
"""

# name | kind | he or she | colour | size | home | eats | is good at | noise | trait | human friend
ANIMALS = """
Rusty   | fox      | he  | red    | small | wood       | berries     | running        | barks    | sly       | Mina
Bramble | hedgehog | he  | brown  | small | garden     | beetles     | digging        | snuffles | shy       | Vera
Pebble  | duck     | she | white  | small | lake       | water weeds | swimming       | quacks   | noisy     | Hugo
Otis    | owl      | he  | grey   | big   | wood       | moths       | seeing at night| hoots    | wise      | Selma
Clover  | rabbit   | she | white  | small | meadow     | carrots     | jumping        | squeaks  | quick     | Greta
Moss    | frog     | he  | green  | tiny  | river      | flies       | hopping        | croaks   | merry     | Jonas
Hazel   | squirrel | she | red    | small | wood       | nuts        | climbing       | chatters | busy      | Lotta
Biscuit | dog      | he  | brown  | big   | farm       | bones       | finding things | barks    | loyal     | Tobin
Velvet  | cat      | she | black  | small | bakery     | cream       | creeping       | purrs    | proud     | Oskar
Thistle | donkey   | he  | grey   | big   | farm       | hay         | carrying things| brays    | stubborn  | Greta
Pepper  | mouse    | she | grey   | tiny  | mill       | crumbs      | hiding         | squeaks  | timid     | Bruno
Barley  | horse    | she | golden | big   | meadow     | oats        | pulling carts  | neighs   | gentle    | Pim
Soot    | crow     | he  | black  | small | lighthouse | seeds       | flying         | caws     | cheeky    | Anton
Dot     | bee      | she | yellow | tiny  | garden     | nectar      | finding flowers| hums     | hardworking | Nell
"""

# key | with article | preposition | looks | what is there | near | what people do there
PLACES = """
mill       | the old mill     | at | tall and grey      | a big wooden wheel    | river   | bring their corn
bakery     | the bakery       | at | warm and bright    | a large stone oven    | market  | buy fresh bread
river      | the river        | at | clear and cold     | many smooth stones    | mill    | wash their clothes
wood       | the dark wood    | in | deep and still     | a hollow oak          | hill    | gather mushrooms
hill       | the windy hill   | on | high and green     | a lonely pine         | wood    | fly kites
lake       | the round lake   | at | wide and blue      | a little island       | lighthouse | row boats
market     | the market       | at | loud and merry     | a row of stalls       | bakery  | buy apples
school     | the school       | at | small and white    | a copper bell         | library | learn to read
farm       | the farm         | on | busy and muddy     | a red barn            | meadow  | milk the cows
garden     | the rose garden  | in | sweet and quiet    | a stone bench         | school  | smell the roses
bridge     | the stone bridge | on | narrow and strong  | an iron lamp          | river   | wave to the boats
library    | the library      | in | silent and cool    | a thousand books      | school  | read old books
meadow     | the long meadow  | in | soft and sunny     | a crooked fence       | farm    | pick flowers
lighthouse | the lighthouse   | at | white and round    | a winding stair       | lake    | look far away
"""

# name | material | colour | owner | kept at | good for
OBJECTS = """
kite      | paper   | red    | Jonas | hill       | playing in the wind
key       | silver  | grey   | Selma | library    | opening the old door
lantern   | glass   | blue   | Anton | lighthouse | walking in the dark
boat      | wooden  | white  | Hugo  | lake       | crossing the water
whistle   | tin     | yellow | Tobin | farm       | calling the sheep
umbrella  | silk    | green  | Vera  | garden     | keeping dry
basket    | straw   | brown  | Nell  | market     | carrying apples
flute     | wooden  | brown  | Lotta | school     | making music
brush     | woollen | pink   | Mina  | mill       | painting pictures
bag       | leather | black  | Pim   | bridge     | carrying letters
spoon     | wooden  | white  | Oskar | bakery     | stirring the soup
wheel     | iron    | grey   | Bruno | mill       | mending the cart
book      | paper   | purple | Ida   | school     | reading at night
rope      | woollen | white  | Greta | farm       | pulling heavy things
marble    | glass   | orange | Pepper | mill      | rolling on the floor
button    | silver  | golden | Soot  | lighthouse | shining in the sun
"""

PRONOUNS = {
    "he": ("he", "him", "his", "himself"),
    "she": ("she", "her", "her", "herself"),
}


def article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def rows(table):
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def pronouns(entity, he):
    entity.he, entity.him, entity.his, entity.himself = PRONOUNS[he]
    entity.He, entity.His = entity.he.capitalize(), entity.his.capitalize()


def load():
    """The world: people, animals, places, objects, and `cast`, which is people and animals."""
    places = {}
    for key, the, prep, looks, has, near, use in rows(PLACES):
        bare = the.removeprefix("the ")
        places[key] = SimpleNamespace(key=key, the=the, bare=bare, prep=prep, at=f"{prep} {the}",
                                      looks=looks, has=has, near=near, use=use)
    for place in places.values():
        place.near = places[place.near]

    people = []
    for name, kind, job, does, home, coat, food, likes, fears, trait, friend in rows(PEOPLE):
        person = SimpleNamespace(name=name, full=name, kind=kind, job=job, a_kind=article(kind), a_job=article(job), does=does,
                                 home=places[home], coat=coat, food=food, likes=likes, fears=fears,
                                 trait=trait, a_trait=article(trait), friend=friend, human=True)
        pronouns(person, "he" if kind in ("boy", "man") else "she")
        people.append(person)

    animals = []
    for name, kind, he, colour, size, home, eats, good, noise, trait, friend in rows(ANIMALS):
        animal = SimpleNamespace(name=name, full=f"{name} the {kind}", kind=kind, a_kind=article(kind),
                                 colour=colour, size=size, home=places[home], food=eats, good=good,
                                 noise=noise, trait=trait, a_trait=article(trait), friend=friend,
                                 human=False)
        pronouns(animal, he)
        animals.append(animal)

    cast = people + animals
    named = {one.name: one for one in cast}
    for one in cast:
        one.friend = named[one.friend]

    objects = []
    for name, material, colour, owner, kept, good in rows(OBJECTS):
        look = f"{colour} {name}"
        objects.append(SimpleNamespace(name=name, material=material, colour=colour, look=look,
                                       a=article(look), a_name=article(name),
                                       a_material=article(f"{material} {name}"),
                                       the=f"the {look}", owner=named[owner], kept=places[kept],
                                       good=good))
    return SimpleNamespace(people=people, animals=animals, places=list(places.values()),
                           objects=objects, cast=cast)
