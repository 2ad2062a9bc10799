package supervise

// Pictures is for the tests outside.
var Pictures = pictures

// Publish is what every step of a python kernel ends with.
func (s *Supervisor) Publish(kernel string) { s.find(kernel).publish() }

// Idle says whether a python kernel may be ended to make room.
func (s *Supervisor) Idle(kernel string) bool {
	_, ok := s.find(kernel).idle()
	return ok
}
