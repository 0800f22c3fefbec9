// Package flamegraph writes a profile as a picture for any browser: a flame graph in one file that fetches
// nothing.
//
// A rectangle is a function called by the one above it, as wide as its share of the samples; the heaviest
// callee comes first. Stacks are merged by function: the source line that is shown is the one most sampled
// there. Weights are numbers of samples.
//
// HTML is a page that draws the rectangles that are wide enough to be seen on a canvas, so that it stays
// fast with a hundred thousand distinct stacks. It holds all threads and events, from which the user can
// choose; it begins with the first event that has samples. With a timeline it shows the samples of each
// program over time, too, and any part of that: times are rounded to steps, so that the page stays small.
// Its data is compressed: see encode. SVG is a static picture, with a script that adds zoom and search where
// scripts run. It has all threads, the first event that has samples, and no rectangles that are too narrow to
// be seen; it says how many it leaves out.
//
// WriteDifference writes a page about two recordings: their stacks as one graph, whose colours say which
// frames differ by more than the error of sampling. statistics.js finds that anew for each part of the recordings that
// is chosen, as package difference does for reports; a test compares the two.
//
// The pages' style and scripts are in page/: data.js, graph.js and strip.js do not depend on the rest of a
// page, so that another page can show two graphs, with Data, Script, StripScript and Style.
//
// Write, WriteDifference and Data leave the caller's profile as it is, and keep nothing of it.
package flamegraph
