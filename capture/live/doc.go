// Package live records: [Record] takes a recording from opening the events to the last feature section. It waits for
// the rings, drains them into a session, and hands what comes out of it to a [Destination]: one file, files by turns,
// the last of a recording, or somebody else's stream. It runs the command that is recorded, takes samples when it is
// told to, and sees to it that it has the CPU in time.
package live
