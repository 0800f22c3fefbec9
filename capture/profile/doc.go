// Package profile is the model from which every report and every converted format is made: the samples of a
// recording as a tree of stacks whose frames have names.
//
// A frame is a place in the code: an address in a function of an image, with its source line, as far as these
// are known. Where the compiler has inlined functions, one address is several frames: the function that the
// code belongs to, and below it, marked Inlined, the functions inlined there. Profile.ByFunction leaves one
// frame of each function.
//
// Stacks share their outer frames: a Node is a frame below a parent, the tree's root stands for the bottom of
// every stack, and a stack is the path from the root to a leaf node. So memory grows with the distinct stacks
// of a recording, not with its samples. Samples that agree in thread, stack, event and the rest are one
// Sample with a weight. A Timeline has them one by one, with their times, in a file.
//
// Load makes a Profile from a recording; CheckValid states what is true for every Profile. Those that write
// one need the part of that in CheckIndices.
//
// How many addresses, functions and stacks are told apart is bounded (see bounds). Addresses beyond that are shown
// by function or image, and stacks end early in a frame of the kind Other; Problems say so.
//
// A Profile belongs to the caller of Load. The profiles that ByFunction and Regroup make of it share its
// slices, so it must not be changed afterwards.
package profile
