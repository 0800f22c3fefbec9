// Package speedscope writes a profile in the format of speedscope
// (https://www.speedscope.app/file-format-schema.json): frames with a name, a file, a line and a column, and
// profiles, lists of stacks with weights.
//
// For each event that has samples there are, in this order, a profile of all threads and, if there is more
// than one, a profile for each thread, the heaviest first. The profile of all threads is the sum of the
// others: who adds up profiles counts every sample twice. speedscope shows the first when it opens the file.
// Threads beyond Options.Threads share the last profile. With several events, a profile's name begins with
// its event's.
//
// Weights are numbers of samples, and stacks are not in the order of time: each stands once in a profile,
// heavy branches first, so that speedscope's "Time Order" is as good a flame graph as its "Left Heavy".
//
// A frame is a function, and its line the one that most of the function's samples are at. With Options.Lines,
// each line of a function is a frame of its own. Where the source file is unknown, the image stands in its
// place, which speedscope chooses colours by. The format cannot tell inlined frames, kernel frames or
// generated code from others, and has no place for gaps; the number of lost samples is in the name of an
// event's first profile.
package speedscope
