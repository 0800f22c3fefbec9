package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// dropHere is set in the process in which TestDropRoot runs itself.
const dropHere = "UNSPOOL_TEST_DROP"

// TestDropRoot gives up root in a process of its own, and checks each of its threads.
func TestDropRoot(t *testing.T) {
	if os.Getenv(dropHere) != "" {
		drop(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, c := range []struct{ name, sudo, sudoGroup, want string }{
		{"root", "", "", "uid 65534 gid 65534"},
		{"sudo", "65533", "65532", "uid 65533 gid 65532"},
		{"sudo by root", "0", "0", "uid 65534 gid 65534"},
		{"no number", "me", "65532", `SUDO_UID="me" is not an ID`},
		{"no group", "65533", "", `SUDO_GID="" is not an ID`},
		{"what the kernel leaves as it is", "4294967295", "65532", `SUDO_UID="4294967295" is not an ID`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestDropRoot$", "-test.v")
			cmd.Env = append(os.Environ(), dropHere+"=1", "SUDO_UID="+c.sudo, "SUDO_GID="+c.sudoGroup)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func drop(t *testing.T) {
	blocked, there := make(chan bool), make(chan bool) // for threads that exist before
	for range 4 {
		go func() {
			runtime.LockOSThread()
			there <- true
			<-blocked
		}()
		<-there
	}
	defer close(blocked)
	if err := DropRoot(); err != nil {
		fmt.Println(err)
		return
	}
	if f, err := os.Open("/etc/shadow"); err == nil {
		f.Close()
		t.Error("/etc/shadow can be read")
	}
	who, err := invoker(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if err := who.checkThreads(); err != nil {
		t.Error(err)
	}
	fmt.Println("uid", os.Getuid(), "gid", os.Getgid())
}

// TestThreadStatus has each privilege that a thread could have kept: it must be found.
func TestThreadStatus(t *testing.T) {
	who := identity{uid: 7, gid: 8, groups: []int{8, 9}}
	right := "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 9 \nCapPrm:\t0000000000000000\n" +
		"CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
	if err := who.check(right); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"}, {"Gid:\t8\t8\t8\t8", "Gid:\t0\t8\t8\t8"},
		{"8 9 ", "0 8 9 "},
		{"CapPrm:\t0000000000000000", "CapPrm:\t0000000000000001"},
		{"CapEff:\t0000000000000000", "CapEff:\t0000000000000004"},
		{"CapAmb:\t0000000000000000", "CapAmb:\t0000000000000004"},
		{"NoNewPrivs:\t1", "NoNewPrivs:\t0"}, {"NoNewPrivs:\t1\n", ""},
	} {
		if who.check(strings.Replace(right, change[0], change[1], 1)) == nil {
			t.Errorf("%q is taken for %q", change[1], change[0])
		}
	}
}
