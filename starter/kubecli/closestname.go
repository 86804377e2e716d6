package kubecli

import "slices"

// maxWrongLetters is the maximum number of wrong letters in a name that still has a closest name. Names of machines end
// in random letters, so more would find names that nobody meant.
const maxWrongLetters = 3

// closestName returns the name in a list that a person who wrote name most likely meant: the one with the fewest
// letters that are wrong, missing, too many or swapped, at most a third of the letters of name and never more than 3;
// else the only one that begins with name. Of several equally close names closestName returns the first. The result is
// empty if no name is close.
func closestName(name string, among []string) (closest string) {
	limit := min(maxWrongLetters, max(1, len(name)/3))
	for _, candidate := range among {
		if wrong := wrongLetters(name, candidate); wrong <= limit {
			closest, limit = candidate, wrong-1
		}
	}
	if closest != "" || name == "" {
		return closest
	}
	for _, candidate := range among {
		switch begins := len(candidate) > len(name) && candidate[:len(name)] == name; {
		case begins && closest != "":
			return ""
		case begins:
			closest = candidate
		}
	}
	return closest
}

// wrongLetters returns how many letters must be replaced, inserted, removed or swapped with their neighbour to turn a
// into b (the optimal string alignment distance).
func wrongLetters(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			wrong := 1
			if a[i] == b[j] {
				wrong = 0
			}
			row[j+1] = slices.Min([]int{last[j] + wrong, last[j+1] + 1, row[j] + 1})
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
