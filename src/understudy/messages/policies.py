"""Policies: what follows from evidence and why, why a node is not left yet, and what is wrong with a policy's file."""

from __future__ import annotations

from understudy.messages.base import Message

NO_RULE = Message(
    "US3400",
    "{detail} ({detector})",
    cause="A detector has reported something that no rule of the policy is about. It is noted and nothing else follows.",
    remedy="If something should follow from it, write a rule for it. `understudy policy check` explains a policy.",
)
IS_OVER = Message(
    "US3401",
    "{detail} ({detector}), which is over",
    cause="What was reported has ended, so what followed from it ends, too.",
)
NOT_OFTEN_ENOUGH = Message(
    "US3402",
    "{detail} ({detector}), by rule {rule!r}: seen {times} of {after} times in {within:g} s",
    cause="The rule wants to see this several times before anything follows from it (after and within).",
)
DECIDED = Message(
    "US3403",
    "{detail} ({detector}), by rule {rule!r}",
    cause="A detector has reported this, and the named rule of the policy decides what follows from it.",
    remedy="Look into what was reported. If something else should follow from it, change the rule (--policy).",
)

QUIET_HOURS = Message(
    "US3420",
    "it is {clock} UTC, in quiet hours",
    cause="The policy lets no rank begin to leave a node at this time of day. A loss is recovered at any time.",
    remedy="The ranks leave when the quiet hours are over. To change that, change quiet_hours in the policy.",
)
ENOUGH_AN_HOUR = Message(
    "US3421",
    "{count} node(s) were left within an hour (nodes_per_hour = {most})",
    cause="The policy limits how many nodes ranks may leave in an hour, so that a wrong detector does not move everything.",
    remedy="The ranks leave later. If so many nodes are really broken, raise nodes_per_hour in the policy.",
)
OTHERS_LEAVE = Message(
    "US3422",
    "ranks are leaving {domains} (domains_at_a_time = {most})",
    cause="The policy limits from how many failure domains ranks may be leaving at the same time.",
    remedy="The ranks leave when the others have left. To change that, change domains_at_a_time in the policy.",
)
TOO_FEW_SPARES = Message(
    "US3423",
    "{spares} warm spares are on trusted nodes (spares_left = {least}, and one is taken)",
    cause="To leave a node takes a spare, and the policy wants some left after that.",
    remedy="Start more spares (--spares), or lower spares_left in the policy.",
)

UNREADABLE = Message(
    "US3450",
    "the policy {path} cannot be read: {reason}",
    cause="The file does not exist, may not be read, or is no text.",
    remedy="Check the path and the permissions.",
)
NOT_TOML = Message(
    "US3451",
    "{path} is not TOML: {problem}",
    cause="The policy has a mistake in its syntax. The text says where.",
    remedy="Correct it, and try it with `understudy policy check`.",
)
TOO_LONG = Message(
    "US3458",
    "{path} has {characters} characters; at most {most} are read",
    cause="A policy is a page or two. What is much longer is refused before it is parsed.",
    remedy="Leave out what is not needed.",
)
TOO_DEEP = Message(
    "US3459",
    "{path}, line {line}: a key with so many parts is refused",
    cause="No key of a policy has more than a few parts, and to parse one with very many would take all of the memory.",
    remedy="Correct the key.",
)
BAD_VALUE = Message(
    "US3452",
    "{path}: {place}{problem}",
    cause="The policy has a setting that does not exist, or one whose value is of the wrong type or out of its bounds.",
    remedy="Correct it, and try it with `understudy policy check`.",
)
NO_DURATION = Message(
    "US3453",
    "{value!r} is no duration: write 30s, 10m, 1.5h or 2d",
    cause="A duration of the policy cannot be read.",
    remedy="Write a number with one of the units ms, s, m, h and d.",
)
NO_TIME_OF_DAY = Message(
    "US3454",
    "{value!r} is no time of day: write 22:00-06:00",
    cause="An entry of quiet_hours cannot be read.",
    remedy="Write two times of day in UTC, each HH:MM, with a dash between them.",
)
EMPTY_HOURS = Message(
    "US3455",
    "{value!r} begins when it ends",
    cause="An entry of quiet_hours has the same beginning and end.",
    remedy="Give two different times, or leave the entry out.",
)
LOST_IS_FOR_WORKERS = Message(
    "US3456",
    'action = "lost" ends workers: say subject = ["worker"], ["device"] or both',
    cause="A rule would end all workers of a node because of evidence about it, or about a link.",
    remedy='Say in the rule of what it is, subject = ["worker", "device"], or take the action "leave".',
)
TWO_RULES = Message(
    "US3457",
    "two rules have the name {name!r}: a decision says by its rule's name where it comes from",
    cause="Rules are told apart by their names.",
    remedy="Give each rule a name that no other rule has.",
)
