package compare

import (
	"cmp"
	"maps"
	"slices"

	"unspool/capture/profile"
	"unspool/capture/profile/difference"
)

// A taskGroup is the samples of a group in a task.
type taskGroup struct {
	task, group int32
	samples     uint64
	blocks      []blockSamples
}

// blockSamples is how many of them are in a block of the recording's time.
type blockSamples struct {
	block   uint8
	samples uint64
}

// count adds the samples to a portion. is says whether they are of its kind.
func (of *taskGroup) count(p *difference.Portion, is bool) {
	for _, b := range of.blocks {
		p.Whole[b.block] += float64(b.samples)
		if is {
			p.Part[b.block] += float64(b.samples)
		}
	}
}

// byBlock counts the samples of each group in each task by block, in the order of tasks and groups. Without times, all
// are in one task and in one block. The error is that of Times.
func (c *Comparison) byBlock() (list []taskGroup, err error) {
	if c.Times == nil {
		for i := range c.Groups {
			n := c.Groups[i].Count
			list = append(list, taskGroup{0, int32(i), n, []blockSamples{{0, n}}})
		}
		return list, nil
	}
	length := uint64(max(0, c.DWARF.Duration))
	type place struct {
		group int32
		block uint8
	}
	for task := range c.Tasks {
		count := make(map[place]uint64)
		if err := c.Times.Each(int32(task), func(p profile.Point) error {
			count[place{c.group(p.Node), difference.BlockOf(p.Time-min(c.DWARF.First, p.Time), length)}]++
			return nil
		}); err != nil {
			return nil, err
		}
		places := slices.SortedFunc(maps.Keys(count), func(a, b place) int {
			return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.block, b.block))
		})
		blocks := make([]blockSamples, len(places)) // room for those of all of the task's groups
		for i, at := range places {
			if i == 0 || at.group != places[i-1].group {
				list = append(list, taskGroup{task: int32(task), group: at.group, blocks: blocks[i:i]})
			}
			of := &list[len(list)-1]
			of.samples += count[at]
			of.blocks = append(of.blocks, blockSamples{at.block, count[at]})
		}
	}
	return list, nil
}
