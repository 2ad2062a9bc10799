// Package exchange carries mail between the branches and participants of a program: an [Exchange] is the [session.Mail] of a
// session, and a [Messenger] is the tool by which a model uses it.
//
//	x := exchange.New(exchange.Options{})
//	s, err := session.New(session.Options{Mail: x})
//
// Each owner has a [Mailbox]: an outbox, and an inbox for each sender. Send only queues a letter in the sender's outbox. Somebody
// has to pump: Collect delivers what one owner has sent, Sync what all have sent, and Run does so again and again until its
// context ends. Nothing else moves mail, and nothing runs in the background by itself.
//
// Mail lives and ends with the program. It is lost with the mailbox that holds it, and where its recipient has none; Dropped
// counts that. A letter whose recipient's inbox is full waits at its sender's (Pending) and is tried again by the next Collect.
// From one sender to one recipient letters arrive in the order in which they were sent, at most once.
//
// The package imports session, ident and the standard library; sessions know nothing of it.
package exchange
