package retention

import (
	"context"
	"errors"
	"slices"

	"soma/ident"
	"soma/wire"
)

// endTold is after how many looks at a session that ends its processes are killed once more: one may have begun just before it
// was closed.
const endTold = 20

// end closes a session and waits until nothing of it runs. One that is gone has ended.
func (k *Keeper) end(ctx context.Context, session string) error {
	if _, err := k.o.Sessions.Close(ctx, session); err != nil {
		return except(err, wire.Gone)
	}
	for n := 1; ; n++ {
		why, err := k.o.Sessions.InUse(ctx, session)
		if err != nil || why == "" {
			return err
		}
		if n%endTold == 0 {
			if err := k.killAll(ctx, session); err != nil {
				return err
			}
		}
		if k.wait(ctx, busyWait) != nil {
			return wire.Errorf(wire.Busy, "session %s is still ending: %s", session, why).Do("make the same request again")
		}
	}
}

func (k *Keeper) killAll(ctx context.Context, session string) error {
	var pids []uint64
	err := k.each(ctx, `select pid from process where session = ? and ended_at is null`, []any{session}, func(scan func(...any) error) error {
		var pid uint64
		err := scan(&pid)
		pids = append(pids, pid)
		return err
	})
	for _, pid := range pids {
		if err == nil {
			_, err = k.o.Sessions.Signal(ctx, pid, ident.New(k.o.Now()).String(), wire.Signal{Signal: wire.Terminate})
			err = except(err, wire.ProcessEnded, wire.NotFound)
		}
	}
	return err
}

// except makes no error of a refusal with one of the codes.
func except(err error, codes ...wire.Code) error {
	var refused *wire.Error
	if errors.As(err, &refused) && slices.Contains(codes, refused.Code) {
		return nil
	}
	return err
}
