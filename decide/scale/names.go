package scale

import "slices"

// Lengths of names. Source: a machine's name becomes the value of a label of its node, and those have at most 63
// characters; five random ones are what Kubernetes' generateName adds.
const (
	maxName = 63
	suffix  = 5
)

// names returns n names that no known machine has: the set's name, cut where it is too long, and a random end.
func names(o Observed, n int) []string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels: no words by accident, as Kubernetes does
	taken := make(map[string]bool, len(o.Members)+len(o.Orphans)+len(o.Taken))
	for _, m := range o.Members {
		taken[m.Name] = true
	}
	for _, m := range o.Orphans {
		taken[m.Name] = true
	}
	for _, name := range o.Taken {
		taken[name] = true
	}
	prefix := o.Set + "-"
	prefix = prefix[:min(len(prefix), maxName-suffix)]
	state := o.Seed
	result := make([]string, 0, n)
	for len(result) < n {
		var bits uint64
		state, bits = splitMix(state)
		end := make([]byte, suffix)
		for i := range end {
			end[i] = letters[bits%uint64(len(letters))]
			bits /= uint64(len(letters))
		}
		if name := prefix + string(end); !taken[name] {
			taken[name] = true
			result = append(result, name)
		}
	}
	slices.Sort(result)
	return result
}

// splitMix is one step of the SplitMix64 generator: all the randomness that a name needs, fixed by its seed on every
// version of Go. Source of the constants: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
func splitMix(state uint64) (next, value uint64) {
	next = state + 0x9e3779b97f4a7c15
	z := next
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return next, z ^ (z >> 31)
}
