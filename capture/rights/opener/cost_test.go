package opener

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"

	"unspool/vmas/process"
)

// BenchmarkRequests compares what an opener is asked for with the same done by this process.
func BenchmarkRequests(b *testing.B) {
	c, err := Start()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { c.Close(); c.process.Wait() }()
	if err := c.Seal(true); err != nil {
		b.Fatal(err)
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	pid := uint32(child.Process.Pid)
	requests := map[string]func(process.Access) error{
		"threads": func(from process.Access) error { _, err := from.Numbers(pid); return err },
		"text": func(from process.Access) error {
			text, err := from.Text(pid, pid, process.Syscall, 0)
			if err != nil {
				return err
			}
			defer text.Close()
			_, err = io.ReadAll(text)
			return err
		},
		"file": func(from process.Access) error {
			file, err := from.OpenPath(pid, child.Path, 0, 0)
			if err != nil {
				return err
			}
			return file.Close()
		},
	}
	for what, request := range requests {
		for _, askers := range []int{1, 4} {
			for how, from := range map[string]process.Access{"asked": c, "direct": process.Direct("/proc")} {
				b.Run(fmt.Sprintf("%s/%d/%s", what, askers, how), func(b *testing.B) {
					var wg sync.WaitGroup
					for range askers {
						wg.Go(func() {
							for range b.N / askers {
								if err := request(from); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
				})
			}
		}
	}
}
