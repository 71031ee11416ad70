// Package nearest finds the name that was meant by a misspelt one. It is part of
// guests, so it imports nothing.
package nearest

// Name returns the one of names that is nearest to name, "" if none is near. At most one
// edit for each three letters is near: a letter added, left out, or replaced, or two
// neighbours swapped. The case of letters does not count.
func Name(name string, names []string) string {
	best, least := "", len(name)/3+1
	for _, n := range names {
		// The difference in length is the least that there can be.
		if max(len(n)-len(name), len(name)-len(n)) >= least {
			continue
		}
		if d := distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// maxListed is the number of names that a hint lists.
const maxListed = 24

// Hint returns the end of an error about an unknown name: the name that was probably meant,
// or the first 24 of names. It begins with separator, and is empty if there are no names.
func Hint(separator, name string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if n := Name(name, names); n != "" {
		return separator + `did you mean "` + n + `"?`
	}
	list := ""
	for i, n := range names {
		if i > 0 {
			list += ", "
		}
		if i == maxListed {
			list += "..."
			break
		}
		list += n
	}
	return separator + "there are " + list
}

// distance returns the number of edits that turn a into b.
func distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := above[j]
			if lower(a[i]) != lower(b[j]) {
				cost++
			}
			row[j+1] = min(cost, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && lower(a[i]) == lower(b[j-1]) && lower(a[i-1]) == lower(b[j]) {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
