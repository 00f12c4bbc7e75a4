"""Every message that a user can see, by area, each with a stable code, a cause and a remedy.

`base` has the types, `registry` all messages by code; the other modules list the messages, each for a part of the system.
`understudy explain CODE` prints an entry.
"""
