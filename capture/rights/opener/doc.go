// Package opener lets a recording continue without rights, and end while something hangs. Every recording starts a
// second process of the same program, the opener, before it gives up its rights, if it does. The opener keeps them, is
// the parent of the recorded command, and reads processes. Of what others have written, the
// opener parses only lines of /proc/PID/maps and the first bytes of files. The recording sends it requests
// over pairs of sockets (unix(7), SOCK_SEQPACKET): for what it needs of other processes ([process.Access]),
// and for the few other things that need rights: an event on a CPU that came back, files of the output, and
// priority.
//
// A request is one message of fixed fields and, for some, a path. An answer is one or more messages with
// bytes and at most one descriptor; the bytes and the descriptor belong to the caller. There are three pairs of
// sockets from the beginning, and more are made when they are needed: four for a recording of a shell's commands,
// six to nine for one of all processes.
//
//	client ─ what is granted ────────────────────▶ opener
//	       ─ makes a line for files ─────────────▶
//	       ─ makes a line for texts and memory ──▶
//	       ─ lines, one request at a time each ══▶ a goroutine for each
//
// The opener makes the pair and sends one end of it, so a client that is confined needs no right for that. As a line
// has one request at a time, one that hangs in the kernel, for example on a file server that does not answer, does not
// delay the others: the client waits for a bounded time, and can end at any time, as only the opener hangs. No user's
// processes get all of the lines: see shares.
//
// Somebody who takes over the confined process through what it parses can get no more from the opener than a
// recording needs: see grants, and handsOut.
package opener
