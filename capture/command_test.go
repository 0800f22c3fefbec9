package capture

import (
	"os"
	"sync"
	"testing"
	"time"
)

// Of commands that are started at the same time, each runs at once, and none holds up another one.
func TestCommandsAtTheSameTime(t *testing.T) {
	t.Parallel()
	const tenSeconds = "10"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c, err := newCommand([]string{"sleep", tenSeconds}, os.Stdout)
			if err != nil {
				t.Error(err)
				return
			}
			ended, began := make(chan struct{}), time.Now()
			if err := c.run(func() { close(ended) }); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("it is not known for %v that the command runs", took)
			}
			_ = c.cmd.Process.Kill()
			<-ended
		})
	}
	all.Wait()
}
