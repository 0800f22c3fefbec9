package recorded

import (
	"testing"

	"unspool/capture/session"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
)

// The trials of smaller copies of a recording find as many stacks joined as are joined with such copies.
func TestTrialsOfSmallerCopies(t *testing.T) {
	data := recordJoined(t, perfring.MaxStackSize)
	sizes := []int{8 << 10, 16 << 10, 64 << 10}
	trials := session.NewSizeTrials(sizes)
	st, err := Walk(t.Context(), Options{Input: data, MaxStack: 2048, Pairs: true}, trials)
	if err != nil {
		t.Fatal(err)
	}
	joined := trials.Joined()
	for _, size := range sizes {
		is := unwindCut(t, data, uint64(size), session.Config{Sink: sessiontest.Discard{}, Join: true,
			JoinAfter: session.JoinAfterRecorded})
		t.Logf("%d bytes: %d of %d joined", size, joined[size], st.User)
		if joined[size] != is.Joined() {
			t.Errorf("%d bytes: %d of %d joined, want %d", size, joined[size], st.User, is.Joined())
		}
	}
	if joined[16<<10] == 0 {
		t.Error("none is joined")
	}
}
