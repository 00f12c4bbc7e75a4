"""Messages of `understudy network`: rails, the host address that is routed over them, and the rail agent."""

from __future__ import annotations

from understudy.messages.base import Message

_FILE = "docs/network/rails.md has a complete file."

UNREADABLE = Message(
    "US3900",
    "{path} cannot be read: {reason}",
    cause="The file with hosts and rails does not exist, may not be read, or is not a text file.",
    remedy="Check the path and the permissions, or name the hosts with --host.",
)
NOT_TOML = Message(
    "US3901",
    "{path} is not TOML: {problem}",
    cause="The file has a mistake in its syntax. The message says where.",
    remedy=f"Correct it. {_FILE}",
)
HOST_FORM = Message(
    "US3902",
    "--host {value}: give NAME=ADDRESS,RAIL,RAIL such as node0=10.72.0.1,10.1.0.1,10.2.0.1",
    cause="A host has a name, its host address, and its address on each rail.",
    remedy="Give all of these, separated by commas.",
)
RAILS_DIFFER = Message(
    "US3903",
    "{host} has {count} rails, {first} has {wanted}",
    cause="Every host needs an address on every rail, in the same order.",
    remedy="Add the missing addresses.",
)
GIVEN_TWICE = Message(
    "US3904",
    "{value} is given twice",
    cause="Names and addresses of hosts must be unique, or packets would go to the wrong host.",
    remedy="Correct one of the two entries.",
)
HOLD_ORDER = Message(
    "US3905",
    "hold ({hold:g}) is longer than hold_most ({most:g})",
    cause="The time for which a next hop stays withdrawn begins with `hold` and grows up to `hold_most`.",
    remedy="Raise hold_most, or lower hold.",
)
HOSTS_NEEDED = Message(
    "US3906",
    "name the hosts and their rails: give --config FILE, or --host once for each host, and not both",
    cause="The command needs to know all hosts and their addresses on each rail.",
    remedy=_FILE,
)
NO_SUCH_HOST = Message(
    "US3910",
    "--this {name}: there is no such host; there are: {known}",
    cause="--this names the entry of this host.",
    remedy="Give one of the names in the configuration.",
)
NOT_THIS_HOST = Message(
    "US3911",
    "none of these hosts is this one: {known}; no device here has one of their rail addresses",
    cause="A host finds its own entry by the rail addresses of its devices.",
    remedy="Give each rail's device its address first (for example with systemd-networkd), or correct the configuration.",
)
SEVERAL_ARE_THIS_HOST = Message(
    "US3912",
    "several of these hosts could be this one: {known}; name it with --this",
    cause="Devices of this host have rail addresses of more than one entry.",
    remedy="Name the entry of this host with --this, and remove addresses that belong to other hosts.",
)
RAIL_WITHOUT_DEVICE = Message(
    "US3913",
    "{host}: one device must have the rail address {address} (found: {found})",
    cause="The device of a rail is found by its address. No device has this one, or several have it.",
    remedy="Give the address to the device of this rail, for example with `ip address add`.",
)
RAILS_SHARE_DEVICE = Message(
    "US3914",
    "{host}: two of its rail addresses are on the device {device}",
    cause="Rails on one device fail together, so they protect from nothing.",
    remedy="Use one device for each rail.",
)
BRIDGE_IS_RAIL = Message(
    "US3915",
    "the device {device} is a rail, so it cannot get the host address",
    cause="`bridge` names the device that is made for the host address. It must not exist yet.",
    remedy="Choose another name for `bridge`.",
)
TOKEN_UNREADABLE = Message(
    "US3916",
    "--token-file {path}: {reason}",
    cause="The file with the token of the probes cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)
TOKEN_SHORT = Message(
    "US3917",
    "--token-file {path}: a token needs at least {least} characters",
    cause="Hosts prove with the token that a probe comes from one of them. A short one can be guessed.",
    remedy="Generate one, for example with `openssl rand -hex 32`, and give the same to every host.",
)
NO_NETLINK = Message(
    "US3918",
    "netlink is used through pyroute2: pip install 'understudy[network]' ({reason})",
    cause="The package pyroute2, which the extra `network` installs, is missing.",
    remedy="Install understudy[network] into this environment.",
)

DEVICE_TAKEN = Message(
    "US3920",
    "the device {device} exists, and is not an empty bridge that is up",
    cause="The host address needs a device that carries nothing else. Something else uses this name.",
    remedy="Choose another name with `bridge` in the configuration, or remove the device.",
)
ADDRESS_TAKEN = Message(
    "US3921",
    "the host address {address} is on the device {device} already",
    cause="The host address must be on no device of a rail, or its connections would break with the rail.",
    remedy="Use an address for `address` that no device has.",
)
ROUTE_TAKEN = Message(
    "US3922",
    "there is another route to {destination}, which Understudy did not make",
    cause="A routing daemon or an administrator has set a route to this host address.",
    remedy="Remove that route, or choose other host addresses.",
)
NO_SETTING = Message(
    "US3923",
    "this kernel has no setting {setting}",
    cause="The kernel was built without routes over several next hops, or the device is gone.",
    remedy="Use a kernel with CONFIG_IP_ROUTE_MULTIPATH.",
)
NOT_PERMITTED = Message(
    "US3924",
    "not permitted: {command} ({reason})",
    cause="Changing the network needs root, or the capability CAP_NET_ADMIN.",
    remedy="Run the command as root.",
)
KERNEL_REFUSED = Message(
    "US3925",
    "the kernel refused: {command} ({reason})",
    cause="The change or query is not possible now, for the reason that the kernel gives.",
    remedy="Run `understudy network plan` to see what is there. A next hop needs a device that is up, with an address in its network.",
)
RECORD_UNUSABLE = Message(
    "US3926",
    "the record {path} cannot be used: {reason}",
    cause="`understudy network apply` writes what was there before into this file, and `undo` reads it.",
    remedy="Check path, permissions and disk. If the file is damaged, revert by hand what `understudy network plan` shows, and remove it.",
)
RECORD_OF_ANOTHER = Message(
    "US3927",
    "the record {path} belongs to another network namespace",
    cause="The record was written in another container or namespace of this machine, whose network this process does not see.",
    remedy="Run the command there, or give another file with --record.",
)
NOTHING_APPLIED = Message(
    "US3928",
    "there is nothing to undo: {path} does not exist",
    cause="`understudy network apply` was not run, was undone already, or used another --record.",
    remedy="If apply was run with --record, give the same file.",
)
NOT_REVERTED = Message(
    "US3929",
    "apply failed ({reason}), and a part could not be reverted ({problem}); the record is kept in {path}",
    cause="A step failed, and reverting the steps before it failed as well.",
    remedy="Correct what the message names, and run `understudy network undo`.",
)

STEP_DONE = Message(
    "US3930",
    "done: {command}",
    cause="`understudy network apply` has made this change.",
)
STEP_THERE = Message(
    "US3931",
    "already so: {command}",
    cause="The effect of this step was there, so `understudy network apply` did nothing.",
)
STEP_RESTORED = Message(
    "US3932",
    "undone: {command}",
    cause="What this step had changed is as it was before.",
)
STEP_GONE = Message(
    "US3933",
    "nothing to undo any more: {command}",
    cause="The effect of this step is not there: it was undone already, the device is gone, or the step was never done.",
)
STEP_KEPT = Message(
    "US3934",
    "left as it is, because another program has changed or uses it: {command}",
    cause="Since this step was done, another program has changed the same setting, or uses the same device or address.",
    remedy="Restore it by hand, if it is not wanted.",
)
APPLIED = Message(
    "US3935",
    "{host} is reached at {address} over {count} rails; what was there before is in {path}. Now run `understudy network rails`",
    cause="`understudy network apply` has succeeded.",
)
UNDONE = Message(
    "US3936",
    "the network is as before; {path} is removed",
    cause="`understudy network undo` has succeeded.",
)
RESTARTED = Message(
    "US3937",
    "the machine was restarted since, so nothing was left to undo; {path} is removed",
    cause="Addresses, routes and settings that `understudy network apply` makes last until the machine restarts.",
)

BEGAN = Message(
    "US3940",
    "the rail agent of {host} watches {rails}; peers: {peers}",
    cause="`understudy network rails` has started.",
)
ENDED = Message(
    "US3941",
    "the rail agent of {host} has ended; routes stay as they are",
    cause="`understudy network rails` was ended by a signal. Next hops that it has withdrawn stay withdrawn.",
    remedy="Start it again: it restores next hops that answer.",
)
LINK_DOWN = Message(
    "US3942",
    "rail {rail}: its link is down",
    cause="The device has no carrier, is set down, has lost its address, or is gone.",
    remedy="Check cable, adapter and switch.",
)
LINK_UP = Message(
    "US3943",
    "rail {rail}: its link is up",
    cause="The device has a carrier again.",
)
WITHDRAWN = Message(
    "US3944",
    "{peer}: the next hop on {rail} is withdrawn after {seconds} s, for at least {hold} s, because {cause}",
    cause="The rail does not lead to this host at present. Its connections continue on the other rails.",
    remedy="Check the rail between the two hosts if it stays so.",
)
RESTORED = Message(
    "US3945",
    "{peer}: the next hop on {rail} is restored after {seconds} s",
    cause="Probes are answered on this rail again.",
)
RESTORED_EARLY = Message(
    "US3946",
    "{peer}: the next hop on {rail} is restored after {seconds} s, before its time, because no other rail leads there",
    cause="All other rails to this host have failed, and a probe on this one was answered.",
)
STAYS_DOWN = Message(
    "US3947",
    "{peer}: the next hop on {rail} has been withdrawn for {seconds} s, because {cause}",
    cause="The rail has not recovered by itself. Until it does, fewer rails connect the two hosts.",
    remedy="Check cable, adapter and switch of this rail at both hosts.",
)
STALLED = Message(
    "US3948",
    "{peer} answers on no rail, for {seconds} s: no next hop is withdrawn",
    cause="The host, or its rail agent, has stopped or is too busy to answer, or is cut off. This is no evidence against a rail.",
    remedy="If it stays so, check the host, and that `understudy network rails` runs there with the same token.",
)
ANSWERS_AGAIN = Message(
    "US3949",
    "{peer} answers again, after {seconds} s",
    cause="The host had answered on no rail.",
)
NOT_APPLIED = Message(
    "US3950",
    "the host address {address} is not on {device}: run `understudy network apply` first",
    cause="The rail agent keeps routes of the host address. Without it, no route is changed.",
    remedy="Run `understudy network apply`, also after each restart of the machine.",
)
PORT_UNUSABLE = Message(
    "US3951",
    "UDP port {port} of {address} on {device} cannot be used: {reason}",
    cause="Another rail agent is running on this host, another program uses the port, or binding to a device is not permitted.",
    remedy="End the other one, or give another port in the section [probes] on every host. The agent needs root.",
)
STATE_UNWRITTEN = Message(
    "US3952",
    "{path} cannot be written: {reason}",
    cause="The folder does not exist and cannot be made, or its disk is full. The rail agent continues.",
    remedy="Give another file with --state or --metrics.",
)

RAIL_DOWN_HERE = Message(
    "US3953",
    "rail {rail} has been down for {seconds} s: none of {peers} peers answers there, and {elsewhere} of them reach other hosts on it",
    cause="The rail works for other hosts, so the device, cable or port of this host has failed.",
    remedy="Check device, cable and switch port of this rail at this host.",
)
RAIL_DOWN_EVERYWHERE = Message(
    "US3954",
    "rail {rail} has been down for {seconds} s: none of {peers} peers answers there, and {elsewhere} of them reach other hosts on it. This "
    "does not show which host has failed",
    cause="The rail has failed for all hosts, or there are only two hosts, so nothing shows which end has failed.",
    remedy="Check the switch of this rail, and the devices and cables of both hosts.",
)

NO_STATE = Message(
    "US3960",
    "{path}: {reason}; is `understudy network rails` running on this host?",
    cause="The rail agent publishes its state in this file, which cannot be read.",
    remedy="Start the rail agent, or give the file that its --state names.",
)
BAD_STATE = Message(
    "US3961",
    "{path} is not the state of a rail agent: {problem}",
    cause="The file has another form than this version of Understudy writes.",
    remedy="Give the file that --state of the rail agent names, and use the same version for both.",
)
STALE = Message(
    "US3962",
    "the rail agent of {host} (process {pid}) does not run: its state is {seconds:.0f} s old",
    cause="The rail agent writes its state every second, until it ends.",
    remedy="Start it again with `understudy network rails`.",
)
