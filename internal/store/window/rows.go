package window

import (
	"database/sql"
	"encoding/json"
	"time"

	"soma/internal/neuron"
)

// OutboxColumns, ExecutionColumns and DeadColumns are what ScanOutbox, ScanExecution and ScanDead read, in this order.
const (
	OutboxColumns    = `place, delivery, due, first_try, tried, attempts, crashes, alarm`
	ExecutionColumns = `body`
	DeadColumns      = `delivery, code, error, attempts, ended_at`
)

// ScanOutbox reads a row of the outbox; the error is that of scan, or of a delivery that is no JSON.
func ScanOutbox(o *neuron.OutboxRow, scan func(...any) error) error {
	var body sql.RawBytes
	var due, first, tried int64
	if err := scan(&o.Place, &body, &due, &first, &tried, &o.Attempts, &o.Crashes, &o.Alarm); err != nil {
		return err
	}
	o.Due, o.FirstTry, o.Tried = FromMicros(due), FromMicros(first), time.Duration(tried)*time.Microsecond
	return json.Unmarshal(body, &o.Delivery)
}

// ScanExecution reads a row of an execution; the error is that of scan, or of a body that is no JSON.
func ScanExecution(x *neuron.Execution, scan func(...any) error) error {
	var body sql.RawBytes
	if err := scan(&body); err != nil {
		return err
	}
	return json.Unmarshal(body, x)
}

// ScanDead reads a row of a dead letter; the error is that of scan, or of a delivery that is no JSON.
func ScanDead(d *neuron.DeadLetter, scan func(...any) error) error {
	var body sql.RawBytes
	var ended int64
	if err := scan(&body, &d.Code, &d.Error, &d.Attempts, &ended); err != nil {
		return err
	}
	d.EndedAt = FromMicros(ended)
	return json.Unmarshal(body, &d.Delivery)
}
