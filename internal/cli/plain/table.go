package plain

import (
	"strings"
	"unicode/utf8"
)

// Table lays rows out in columns as wide as their content. Columns in right are aligned to the right; the last column is
// not padded.
func Table(rows [][]string, right map[int]bool) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			fill := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case right[i]:
				b.WriteString(fill + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + fill)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
