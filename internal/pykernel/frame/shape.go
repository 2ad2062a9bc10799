package frame

import (
	"bytes"
	"encoding/json"
	"strings"

	"soma/internal/pykernel"
)

// fields are the fields of an object with their types, as protocol/pykernel/frames.json has them: "?" marks an optional one,
// which is absent and never null; a field of type json may be anything, also absent.
type fields map[string]string

// shapes are the frames of a python kernel.
var shapes = map[pykernel.FrameType]fields{
	pykernel.FrameReady:        {},
	pykernel.FrameStartupError: {"error": "string"},
	pykernel.FrameCall:         {"id": "string", "cell": "string?", "method": "json", "args": "json"},
	pykernel.FrameDone: {
		"cell": "string", "status": "string", "started_at": "int", "duration_ms": "int", "value": "string?", "error": "object?",
		"output": "object", "calls": "array?", "images": "array?", "image_errors": "array?", "repair": "string?",
		"background": "bool?", "wake": "bool?",
	},
	pykernel.FrameBackgrounded: {"cell": "string", "duration_ms": "int", "output": "object"},
	pykernel.FrameCells:        {"live": "int", "bloated": "bool", "eligible": "bool"},
	pykernel.FrameTrace:        {"cell": "string", "changes": "array"},
	pykernel.FrameJobStart: {
		"job": "string", "pid": "int", "pgid": "int", "leader": "string", "command": "string", "service": "bool",
		"cell": "string?", "started_at": "int",
	},
	pykernel.FrameJob: {
		"job": "string", "cell": "string?", "state": "string", "exit_code": "int?", "timed_out": "bool", "ended_at": "int",
		"bytes": "int", "service": "bool", "command": "string", "wake": "bool", "tail": "string",
	},
	pykernel.FrameJobs:     {"live": "int", "awaited": "int", "items": "array"},
	pykernel.FrameSeen:     {"cells": "array", "jobs": "array"},
	pykernel.FrameCleanup:  {"errors": "array"},
	pykernel.FrameJobList:  {"id": "string", "ok": "bool", "code": "string?", "error": "string?", "jobs": "array?"},
	pykernel.FrameJobRead:  {"id": "string", "ok": "bool", "code": "string?", "error": "string?", "page": "object?"},
	pykernel.FrameJobStop:  {"id": "string", "ok": "bool", "code": "string?", "error": "string?"},
	pykernel.FrameCellRead: {"id": "string", "ok": "bool", "code": "string?", "error": "string?", "page": "object?"},
	pykernel.FrameComplete: {
		"id": "string", "ok": "bool", "code": "string?", "error": "string?", "names": "array?", "start": "int?",
	},
}

// objects are the shapes of what frames hold, by path; those of a list are its items'.
var objects = map[string]fields{
	"done.error":        {"type": "string", "message": "string", "traceback": "string"},
	"done.output":       {"head": "string", "tail": "string", "size": "int", "spill": "object?"},
	"done.output.spill": {"path": "string", "size": "int", "whole": "bool"},
	"done.images":       {"media": "string", "data": "string", "name": "string?"},
	"trace.changes":     {"path": "string", "kind": "string", "diff": "string", "truncated": "bool"},
	"jobs.items":        {"id": "string", "command": "string", "service": "bool", "started": "int"},
	"job_list.jobs": {
		"id": "string", "command": "string", "state": "string", "exit_code": "int?", "timed_out": "bool", "service": "bool",
		"started_at": "int", "ended_at": "int?", "bytes": "int", "cell": "string?",
	},
	"page": {"offset": "int", "next_offset": "int", "size": "int", "running": "bool", "text": "string"},
}

// answers are the fields that an answer must hold if it is ok.
var answers = map[pykernel.FrameType][]string{
	pykernel.FrameJobList: {"jobs"}, pykernel.FrameJobRead: {"page"}, pykernel.FrameJobStop: {},
	pykernel.FrameCellRead: {"page"}, pykernel.FrameComplete: {"names", "start"},
}

// object reads an object of the given shape; name is for the error.
func object(name string, b json.RawMessage, want fields) (map[string]json.RawMessage, error) {
	have, ok := members(b)
	if !ok {
		return nil, malformed("%s is no object", name)
	}
	return have, fits(name, have, want)
}

// fits holds the members of an object against a shape.
func fits(name string, have map[string]json.RawMessage, want fields) error {
	for field, kind := range want {
		kind, optional := strings.CutSuffix(kind, "?")
		v, ok := have[field]
		switch {
		case kind == "json" || !ok && optional:
		case !ok:
			return malformed("%s lacks %s", name, field)
		case !is(kind, v):
			return malformed("%s has a %s that is no %s", name, field, kind)
		}
	}
	return nil
}

// is reports whether a JSON value is of the type.
func is(kind string, v json.RawMessage) bool {
	switch first := v[0]; kind {
	case "string":
		return first == '"'
	case "bool":
		return first == 't' || first == 'f'
	case "int":
		return (first == '-' || '0' <= first && first <= '9') && !bytes.ContainsAny(v, ".eE")
	case "array":
		return first == '['
	default:
		return first == '{'
	}
}

// items reads a list of objects of the given shape.
func items(name string, b json.RawMessage, want fields) error {
	list, ok := elements(b)
	if !ok {
		return malformed("%s is no list", name)
	}
	for _, item := range list {
		if _, err := object(name, item, want); err != nil {
			return err
		}
	}
	return nil
}

// check holds the members of a frame against its shape.
func check(kind pykernel.FrameType, have map[string]json.RawMessage) error {
	want, ok := shapes[kind]
	if !ok {
		return nil
	}
	err := fits(string(kind), have, want)
	if err != nil {
		return err
	}
	if _, ok := answers[kind]; ok {
		return checkAnswer(kind, have)
	}
	for field := range want {
		path := string(kind) + "." + field
		if kind == pykernel.FrameBackgrounded {
			path = "done." + field
		}
		v, there := have[field]
		shape, known := objects[path]
		switch {
		case !there || !known:
		case v[0] == '[':
			err = items(path, v, shape)
		default:
			var inner map[string]json.RawMessage
			if inner, err = object(path, v, shape); err == nil && inner["spill"] != nil && field == "output" {
				_, err = object("done.output.spill", inner["spill"], objects["done.output.spill"])
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkAnswer(kind pykernel.FrameType, have map[string]json.RawMessage) error {
	need := []string{"code", "error"}
	if have["ok"][0] == 't' {
		need = answers[kind]
	}
	for _, field := range need {
		if have[field] == nil {
			return malformed("%s lacks %s", kind, field)
		}
	}
	if page := have["page"]; page != nil {
		if _, err := object("page", page, objects["page"]); err != nil {
			return err
		}
	}
	if jobs := have["jobs"]; jobs != nil {
		return items("job_list.jobs", jobs, objects["job_list.jobs"])
	}
	return nil
}
