// Package speedscope writes a profile in the format of speedscope
// (https://www.speedscope.app/file-format-schema.json): frames with a name, a file, a line and a column, and
// profiles, lists of stacks with weights.
//
// For each event that has samples there are, in this order, a profile of all threads and, if there is
// more than one, a profile for each thread, the heaviest first. The profile of all threads is the sum
// of the others: adding all profiles up counts every sample twice. speedscope shows the first when it
// opens the file. Threads beyond Options.Threads share the last profile. With several events, a
// profile's name begins with its event's.
//
// Weights are numbers of samples. Stacks are in the order of time, neighbours that are equal as one, if
// Options.Timeline has the samples and there are at most 200,000. Otherwise each stack is once in a profile,
// heavy branches first, so that speedscope's "Time Order" is as good a flame graph as its "Left Heavy".
//
// A frame is a function, with the line that has most of the function's samples. With Options.Lines, each
// line of a function is a frame of its own. If the source file is unknown, the image is written in its
// place, by which speedscope chooses colours. The format has no marks for inlined frames, kernel frames or
// generated code, and no place for gaps; the number of lost samples is in the name of an event's first
// profile.
//
// Write leaves the caller's profile as it is, and keeps nothing of it.
package speedscope
