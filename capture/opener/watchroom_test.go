package opener

import (
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// TestRoomForReadings: root's readings have the room that they are to have, whatever the limit for others is.
func TestRoomForReadings(t *testing.T) {
	t.Parallel()
	lane.Root(t)
	c, theirs, err := newClient()
	for _, fd := range theirs {
		defer unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, fd := range theirs[len(theirs)-mostWatches:] {
		// The kernel counts twice what is asked for, as socket(7) says.
		if room, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil || room != 2*watchRoom {
			t.Errorf("room for %d bytes, %v", room, err)
		}
	}
}
