//go:build !race

package perfring

// faultsOfTouch is how many page faults one page is that is touched.
const faultsOfTouch = 1
