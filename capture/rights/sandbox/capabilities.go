package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

func mask(all ...uint) (bits uint64) {
	for _, c := range all {
		bits |= 1 << c
	}
	return bits
}

// A capabilities has the capability sets of a thread (capabilities(7)).
type capabilities [2]unix.CapUserData

var capabilityHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

func ownCapabilities() (c capabilities, err error) {
	h := capabilityHeader
	err = unix.Capget(&h, &c[0])
	return c, err
}

// permitted are the capabilities that a process may have.
func (c *capabilities) permitted() uint64 { return uint64(c[1].Permitted)<<32 | uint64(c[0].Permitted) }

func (c *capabilities) set(effective, permitted uint64) {
	for i := range c {
		shift := 32 * i
		c[i] = unix.CapUserData{Effective: uint32(effective >> shift), Permitted: uint32(permitted >> shift)}
	}
}

// apply sets the capabilities of every thread.
func (c *capabilities) apply() error {
	h := capabilityHeader
	return eachThread(func() error { return sys.CapsetAllThreads(&h, (*[2]unix.CapUserData)(c)) })
}

// keep gives up all capabilities but some.
func keep(kept uint64) error {
	c, err := ownCapabilities()
	if err != nil {
		return err
	}
	kept &= c.permitted()
	if c.permitted() == 0 {
		return nil
	}
	c.set(kept, kept)
	return c.apply()
}

// Lower makes a process whose file has capabilities do without them, until [Raise]: what a user names is
// opened with the user's own rights. Root's capabilities do not come from the file, and stay.
func Lower() error {
	c, err := ownCapabilities()
	if err != nil || os.Geteuid() == 0 || c.permitted() == 0 {
		return err
	}
	c.set(0, c.permitted())
	return c.apply()
}

// ForChildren are the capabilities of this process that a program which it runs would not have: by default, those that
// a service or another program gave it. Root's children have root's, those of a file come from the file again.
func ForChildren() (all []uintptr) {
	c, err := ownCapabilities()
	if err != nil || os.Geteuid() == 0 {
		return nil
	}
	for n := range uintptr(64) {
		if c.permitted()>>n&1 != 0 {
			all = append(all, n)
		}
	}
	return all
}

// Lowered reports whether Raise would give something back.
func Lowered() bool {
	c, err := ownCapabilities()
	return err == nil && os.Geteuid() != 0 && c.permitted() != 0
}

// Raise undoes Lower.
func Raise() error {
	c, err := ownCapabilities()
	if err != nil || os.Geteuid() == 0 || c.permitted() == 0 {
		return err
	}
	c.set(c.permitted(), c.permitted())
	return c.apply()
}

// Renounce gives up for good what Lower gives up until Raise.
func Renounce() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return keep(0)
}
