// Package human writes numbers and names for people, in the same way in the summary of a recording, in
// reports and on pages. It keeps nothing; a writer that JSON returns belongs to its caller.
package human
