package supervise

// For the tests outside.
var (
	LockHolder = lockHolder
	Pictures   = pictures
)
