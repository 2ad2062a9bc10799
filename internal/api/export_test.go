package api

import "time"

// MaxStrangers is how many connections may be without a credential.
const MaxStrangers = maxStrangers

// Tests of time and of foreign users set what a daemon never sets.

func (s *Server) SetTimeout(d time.Duration)   { s.timeout = d }
func (s *Server) SetHeartbeat(d time.Duration) { s.heartbeat = d }
func (s *Server) SetReading(d time.Duration)   { s.reading = d }
func (s *Server) SetWriting(d time.Duration)   { s.writing = d }
func (s *Server) SetStreams(most int64)        { s.most = most }
func (s *Server) SetUID(uid uint32)            { s.uid = uid }
