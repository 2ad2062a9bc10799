package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Line is one figure.
type Line struct {
	Name  string
	Value float64
	Unit  string
	// Bare is what the smallest program for the same job reached in the same run, 0 where there is none.
	Bare float64
	N    int // measured rounds
	FS   string
}

// Print writes the figure as one line of JSON: ratio is value / bare, both are null without a bare value.
func (l Line) Print(w io.Writer) error {
	out := struct {
		Name  string           `json:"name"`
		Value json.RawMessage  `json:"value"`
		Unit  string           `json:"unit"`
		Ratio *json.RawMessage `json:"ratio"`
		Bare  *json.RawMessage `json:"bare"`
		N     int              `json:"n"`
		FS    string           `json:"fs"`
	}{Name: l.Name, Value: digits(l.Value), Unit: l.Unit, N: l.N, FS: l.FS}
	if l.Bare > 0 {
		ratio, bare := digits(l.Value/l.Bare), digits(l.Bare)
		out.Ratio, out.Bare = &ratio, &bare
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// digits keeps four significant ones, or all before the point.
func digits(v float64) json.RawMessage {
	if v >= 1000 {
		return strconv.AppendFloat(nil, v, 'f', 0, 64)
	}
	return strconv.AppendFloat(nil, v, 'g', 4, 64)
}
