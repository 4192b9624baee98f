#!/usr/bin/env python3
"""Writes the corpus: OUT/train.txt and OUT/held-out.txt, and the generator's entropy to OUT/corpus.json.

A document is a story, a description, questions with answers, or a chat in ChatML; END follows each.
The bits of a document are those of the choices that made it. Two series of choices can make the same
text, so the bits are an upper bound on the text's information, and a close one.
"""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import facts
import stories
import world
from grammar import Speaker

END = "<|endoftext|>"
TURN, TURN_END = "<|im_start|>", "<|im_end|>"
HELD_OUT_SEED = 1_000_003  # train and held-out text come from different seeds


class Generator:
    def __init__(self, seed):
        self.world = world.load()
        self.speaker = Speaker(seed, stories.RULES | facts.UNKNOWN_RULE)
        for place in self.world.places:
            place.a_bare = world.article(place.bare)
            place.use_you = place.use.replace("their", "your")
            place.use_i = place.use.replace("their", "my")

    def other(self, options, *taken):
        return self.speaker.pick([one for one in options if one not in taken])

    def story(self):
        """The scope of a story, its text, and the questions that it answers."""
        speaker = self.speaker
        lesson, hero, template, questions = stories.PLOTS[speaker.pick(list(stories.PLOTS))]
        scope = {"h": speaker.pick(self.world.people if hero == "human" else self.world.cast)}
        scope["f"] = self.other(self.world.cast, scope["h"])
        scope["g"] = self.other(self.world.cast, scope["h"], scope["f"])
        cast = (scope["h"], scope["f"], scope["g"])
        scope["o"] = speaker.pick([one for one in self.world.objects if one.owner not in cast])
        scope["p"] = speaker.pick(self.world.places)
        scope["q"] = self.other(self.world.places, scope["p"])
        scope["lesson"] = speaker.pick(stories.LESSONS[lesson])
        if "{skill}" in template:
            scope["skill"] = speaker.pick(stories.SKILLS)
        return scope, speaker.say(template, scope), questions

    def story_document(self):
        scope, text, questions = self.story()
        if self.speaker.chance(0.25):
            question, answer = self.speaker.pick(questions)
            text += "\n\n" + self.speaker.say(f"Question: {question}\nAnswer: {answer}", scope)
        return text

    def fact(self):
        """A question about a fact of the world, and its answer."""
        speaker = self.speaker
        tables = [(5, (facts.PERSON, self.world.people)), (5, (facts.ANIMAL, self.world.animals)),
                  (2, (facts.PLACE, self.world.places)), (2, (facts.OBJECT, self.world.objects)), (1.5, None)]
        chosen = speaker.pick_weighted(tables)
        if chosen is None:
            return self.knowledge()
        questions, entities = chosen
        entity = speaker.pick(entities)
        question, answer = speaker.pick(questions)
        scope = {"e": entity}
        if "{x." in question:
            scope["x"] = self.other(entities, entity)
        question = speaker.say(question, scope)
        if question.startswith("Tell"):
            question = question.replace("?", ".")
        return question, speaker.say(answer, scope)

    def knowledge(self):
        """Sums, colours, opposites, seasons and days."""
        speaker = self.speaker
        sort = speaker.pick(["sum", "mix", "opposite", "season", "day"])
        if sort == "sum":
            a, b = speaker.pick(range(11)), speaker.pick(range(11))
            first, second, total = facts.NUMBERS[a], facts.NUMBERS[b], facts.NUMBERS[a + b]
            question, answer = f"What is {first} and {second}?", f"[{first} and {second} is {total}|It is {total}]."
        elif sort == "mix":
            one, two, mixed = speaker.pick(facts.COLOUR_MIXES)
            question, answer = f"What do {one} and {two} make?", f"{one} and {two} make {mixed}."
        elif sort == "opposite":
            pair = speaker.pick(facts.OPPOSITES)
            word, opposite = pair if speaker.chance(0.5) else pair[::-1]
            question, answer = f"What is the opposite of {word}?", f"The opposite of {word} is {opposite}."
        else:
            cycle, noun = (facts.SEASONS, "season") if sort == "season" else (facts.DAYS, "day")
            at = speaker.pick(range(len(cycle)))
            after = cycle[(at + 1) % len(cycle)]
            question, answer = f"Which {noun} comes after {cycle[at]}?", f"After {cycle[at]} comes {after}."
        return speaker.say(question, {}), speaker.say(answer, {})

    def questions_document(self):
        pairs = [self.fact() for _ in range(self.speaker.pick(range(2, 7)))]
        return "\n\n".join(f"Question: {question}\nAnswer: {answer}" for question, answer in pairs)

    def description(self):
        speaker = self.speaker
        template, entities = speaker.pick([(facts.DESCRIBE_PERSON, self.world.people),
                                           (facts.DESCRIBE_ANIMAL, self.world.animals),
                                           (facts.DESCRIBE_PLACE, self.world.places)])
        entity = speaker.pick(entities)
        return entity, speaker.say(template, {"e": entity})

    def descriptions_document(self):
        return "\n\n".join(self.description()[1] for _ in range(self.speaker.pick(range(1, 4))))

    def request(self, scope):
        """What a user says to get this story."""
        return self.speaker.say(
            "[[Tell me|Please tell me|I would like to hear] <about>.|[Can|Could] you tell me <about>?|Tell me <about>, please.]", scope)

    def small_talk(self):
        speaker = self.speaker
        question, answer = speaker.pick(facts.SMALL_TALK)
        scope = {}
        if "{" in answer:
            scope["a"] = speaker.pick(self.world.people)
            scope["b"] = speaker.pick(self.world.animals)
            scope["c"] = self.other(self.world.people, scope["a"])
            scope["d"] = self.other(self.world.animals, scope["b"])
        return speaker.say(question, scope), speaker.say(answer, scope)

    def unknown(self):
        question, answer = self.speaker.pick(facts.UNKNOWN)
        return self.speaker.say(question, {}), self.speaker.say(answer, {})

    def turns(self):
        """One to three turns that belong together."""
        speaker = self.speaker
        sort = speaker.pick_weighted([(5, "fact"), (4, "story"), (2, "describe"), (2, "talk"), (1, "unknown")])
        if sort == "story":
            scope, text, questions = self.story()
            turns = [(self.request(scope), text)]
            while speaker.chance(0.4):
                question, answer = speaker.pick(questions)
                turns.append((speaker.say(question, scope), speaker.say(answer, scope)))
            return turns
        if sort == "describe":
            entity, text = self.description()
            name = getattr(entity, "name", None) or entity.the
            return [(speaker.say(f"[Describe|Please describe|Tell me more about] {name}.", {}), text)]
        return [{"fact": self.fact, "talk": self.small_talk, "unknown": self.unknown}[sort]()]

    def chat_document(self):
        turns = self.turns()
        while len(turns) < 6 and self.speaker.chance(0.5):
            turns += self.turns()
        return "\n".join(f"{TURN}user\n{user}{TURN_END}\n{TURN}assistant\n{assistant}{TURN_END}"
                         for user, assistant in turns) + "\n"

    def document(self):
        make = self.speaker.pick_weighted([(50, self.story_document), (8, self.descriptions_document),
                                           (10, self.questions_document), (32, self.chat_document)])
        return make()


def write(path, seed, characters):
    """Writes documents until there are `characters`; returns the counts and the bits."""
    generator = Generator(seed)
    count = SimpleNamespace(seed=seed, documents=0, characters=0, bits=0.0)
    with open(path, "w", encoding="ascii") as out:
        while count.characters < characters:
            text = generator.document()
            out.write(text + END)
            count.documents += 1
            count.characters += len(text)
    count.bits = generator.speaker.bits
    count.bits_per_character = count.bits / count.characters
    return vars(count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--characters", type=int, default=32_000_000)
    parser.add_argument("--held-out-characters", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    counts = {"train": write(args.out / "train.txt", args.seed, args.characters),
              "held-out": write(args.out / "held-out.txt", args.seed + HELD_OUT_SEED, args.held_out_characters)}
    (args.out / "corpus.json").write_text(json.dumps(counts, indent=2) + "\n")
    print(json.dumps(counts, indent=2))


if __name__ == "__main__":
    main()
