//go:build race

package perfring

// faultsOfTouch is how many page faults one page is that is touched: the race detector has a page of its own for it.
const faultsOfTouch = 2
