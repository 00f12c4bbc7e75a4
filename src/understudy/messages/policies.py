"""Policies: what follows from evidence and why, why a node is not left yet, and mistakes in a policy's file."""

from __future__ import annotations

from understudy.messages.base import Message

NO_RULE = Message(
    "US3400",
    "{detail} ({detector})",
    cause="A detector reported evidence that no rule of the policy covers. It is recorded and has no other effect.",
    remedy="Write a rule if this evidence should have an effect. `understudy policy check` explains a policy.",
)
IS_OVER = Message(
    "US3401",
    "{detail} ({detector}), which has ended",
    cause="The reported condition has ended, so its consequences end, too.",
)
NOT_OFTEN_ENOUGH = Message(
    "US3402",
    "{detail} ({detector}), by rule {rule!r}: seen {times} of {after} times in {within:g} s",
    cause="The rule requires several occurrences before it acts (after and within).",
)
DECIDED = Message(
    "US3403",
    "{detail} ({detector}), by rule {rule!r}",
    cause="A detector reported this, and the named rule of the policy decides what follows.",
    remedy="Investigate the reported evidence. To change what follows from it, change the rule (--policy).",
)

QUIET_HOURS = Message(
    "US3420",
    "it is {clock} UTC, in quiet hours",
    cause="During quiet hours, the policy does not let ranks begin to leave a node. Losses are still recovered.",
    remedy="Wait: the ranks leave when the quiet hours are over. To change the hours, change quiet_hours in the policy.",
)
ENOUGH_AN_HOUR = Message(
    "US3421",
    "ranks left {count} node(s) within an hour (nodes_per_hour = {most})",
    cause="The policy limits how many nodes ranks may leave in an hour, so that a wrong detector does not move everything.",
    remedy="Raise nodes_per_hour in the policy if so many nodes are really broken. Otherwise the ranks leave later.",
)
OTHERS_LEAVE = Message(
    "US3422",
    "ranks are leaving {domains} (domains_at_a_time = {most})",
    cause="The policy limits from how many failure domains ranks may be leaving at the same time.",
    remedy="Wait until the other ranks have left. To change that, change domains_at_a_time in the policy.",
)
TOO_FEW_SPARES = Message(
    "US3423",
    "{spares} warm spares are on trusted nodes (spares_left = {least}, and one would be used)",
    cause="Leaving a node uses up a spare, and the policy requires that some are left after that.",
    remedy="Start more spares (--spares), or lower spares_left in the policy.",
)

UNREADABLE = Message(
    "US3450",
    "the policy {path} cannot be read: {reason}",
    cause="The file does not exist, may not be read, or is not a text file.",
    remedy="Check the path and the permissions.",
)
NOT_TOML = Message(
    "US3451",
    "{path} is not TOML: {problem}",
    cause="The policy has a mistake in its syntax. The message says where.",
    remedy="Correct it, and test it with `understudy policy check`.",
)
TOO_LONG = Message(
    "US3458",
    "{path} has {characters} characters; at most {most} are read",
    cause="A policy normally has a page or two. A much longer file is rejected before it is parsed.",
    remedy="Remove what is not needed.",
)
TOO_DEEP = Message(
    "US3459",
    "{path}, line {line}: a key with so many parts is rejected",
    cause="No key of a policy has more than a few parts, and parsing a key with very many would exhaust the memory.",
    remedy="Correct the key.",
)
BAD_VALUE = Message(
    "US3452",
    "{path}: {place}{problem}",
    cause="The policy has a setting that does not exist, or one whose value has the wrong type or is out of range.",
    remedy="Correct it, and test it with `understudy policy check`.",
)
NO_DURATION = Message(
    "US3453",
    "{value!r} is not a duration: write 30s, 10m, 1.5h or 2d",
    cause="A duration of the policy cannot be read.",
    remedy="Write a number with one of the units ms, s, m, h and d.",
)
NO_TIME_OF_DAY = Message(
    "US3454",
    "{value!r} is not a time of day: write 22:00-06:00",
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
    'action = "lost" ends workers: use subject = ["worker"], ["device"] or both',
    cause="A rule would end all workers of a node because of evidence about it, or about a link.",
    remedy='Restrict the rule with subject = ["worker", "device"], or use the action "leave".',
)
TWO_RULES = Message(
    "US3457",
    "two rules have the name {name!r}: each decision names its rule",
    cause="Rules are distinguished by their names.",
    remedy="Give each rule a name that no other rule has.",
)
