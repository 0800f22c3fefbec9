// Package flamegraph writes a profile as a picture for any browser: a flame graph in one file that fetches
// nothing.
//
// A rectangle is a function called by the one above it, as wide as its share of the samples; the heaviest
// callee comes first. Stacks are merged by function: the source line that is shown is the one most sampled
// there. Weights are numbers of samples.
//
// HTML is a page that draws on a canvas what is wide enough to be seen, so that a hundred thousand distinct
// stacks stay fluid. It holds all threads and events, and has the reader choose; it begins with the first
// event that has samples. Its data is compressed: see encode. SVG is a static picture that a script brings to
// life where scripts run: all threads, the first event that has samples, and no rectangle that is too narrow
// to be seen, which it says.
//
// The page's style and scripts are in page/: data.js and graph.js know nothing of the page around them, so
// that another page can show two graphs, with Data, Script and Style.
package flamegraph
