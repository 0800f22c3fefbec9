// Package human writes numbers and names for people: what the summary of a recording, reports and pages have
// in common.
package human
