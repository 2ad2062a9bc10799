package supervise

// LockHolder is lockHolder for the tests outside.
var LockHolder = lockHolder
