package tool

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// PythonName is the name of the one native tool.
const PythonName = "python"

// MaxCellTimeout is the longest a cell may run, and its deadline when the call names none.
const MaxCellTimeout = time.Hour

//go:embed python.md
var pythonText string

// Python returns the definition of the `python` tool (K-46). rules is what the bindings of its namespace say, each rule once.
func Python(rules string) Definition {
	return Definition{
		Name:        PythonName,
		Description: strings.TrimSpace(pythonText + "\n" + rules),
		Schema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{`+
			`"code":{"type":"string","description":"Python source of the cell."},`+
			`"timeout_ms":{"type":"integer","minimum":1,"maximum":%d,"description":"Milliseconds after which the cell is stopped; one hour if left out."}},`+
			`"required":["code"],"additionalProperties":false}`, MaxCellTimeout.Milliseconds())),
	}
}

// PythonCall reads arguments that Check has passed: the code and the cell's deadline.
func PythonCall(arguments json.RawMessage) (code string, timeout time.Duration, err error) {
	var a struct {
		Code string `json:"code"`
		// a whole number may be written 5.0 or 5e3
		TimeoutMS float64 `json:"timeout_ms"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", 0, fmt.Errorf("cannot read the arguments of python: %w", err)
	}
	timeout = MaxCellTimeout
	if a.TimeoutMS > 0 {
		timeout = min(time.Duration(a.TimeoutMS)*time.Millisecond, MaxCellTimeout)
	}
	return a.Code, timeout, nil
}
