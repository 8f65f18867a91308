package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// The error of a transaction names the operation, the znode and the reason.
func TestTxErrorNamesTheOperation(t *testing.T) {
	err := error(&TxError{Index: 1, Op: Op{Kind: OpSet, Path: "/c/leader"}, Err: ErrBadVersion})
	if err.Error() != "set /c/leader: znode has changed since it was read" || !errors.Is(err, ErrBadVersion) {
		t.Error(err)
	}
	if got := OpKind(9).String(); got != "op(9)" {
		t.Errorf("an unknown kind is called %q", got)
	}
}

// Every transaction carries the records that it writes.
func TestTransactionsCarryTheirRecords(t *testing.T) {
	p := Paths{Root: "/c"}
	node, next, fence, current, control := Node{ID: "n1", Instance: NewInstance(1)}, Elected{Term: 8}, Fence{Term: 8}, Current{Term: 8}, Control{Last: 8}
	keys, acts, heir := FailsafeKeys{By: "me"}, Fencings{Acts: []FencingAct{{By: "me"}}}, HeirRecord{Term: 8}
	var s Snapshot
	s.Fence.Exists = true
	for name, c := range map[string]struct {
		op   Op
		want []byte
	}{
		"REGISTER":            {p.RegisterTx(node)[0], Encode(&node)},
		"ELECT":               {p.ElectTx(s, next, nil)[3], Encode(&next)},
		"ELECT over a fence":  {p.ElectTx(s, next, &fence)[2], Encode(&fence)},
		"ACQUIRE, the fence":  {p.AcquireTx(s, fence, current)[ResultFence], Encode(&fence)},
		"ACQUIRE, current":    {p.AcquireTx(s, fence, current)[ResultCurrent], Encode(&current)},
		"READY, the fence":    {p.ReadyTx(HeldVersions{}, fence, current)[ResultFence], Encode(&fence)},
		"READY, current":      {p.ReadyTx(HeldVersions{}, fence, current)[ResultCurrent], Encode(&current)},
		"RELEASE":             {p.ReleaseTx(HeldVersions{}, fence)[1], Encode(&fence)},
		"FINAL":               {p.FinalTx(HeldVersions{}, fence)[1], Encode(&fence)},
		"REVOKE":              {p.RevokeTx(s, fence)[2], Encode(&fence)},
		"control":             {p.ControlTx("", Stored[Control]{}, control)[0], Encode(&control)},
		"HEIR":                {p.HeirTx(s, heir)[3], Encode(&heir)},
		"a node":              {p.NodeTx("n1", 6, node)[1], Encode(&node)},
		"failsafe keys":       {p.FailsafeKeysTx(Stored[FailsafeKeys]{}, keys)[0], Encode(&keys)},
		"acts of fencing":     {p.FencingsTx(Stored[Fencings]{}, acts)[0], Encode(&acts)},
		"control, an elector": {p.ControlTx("n1", Stored[Control]{}, control)[1], Encode(&control)},
	} {
		if string(c.op.Data) != string(c.want) {
			t.Errorf("%s carries %q, want %q", name, c.op.Data, c.want)
		}
	}
	if data := p.RegisterTx(node)[1].Data; data == nil {
		t.Error("an incarnation with nil data: some servers reject that")
	}
}

// A transaction that is sent for a dead daemon is exactly the one that it has handed over, or none.
func TestEncodeTx(t *testing.T) {
	p := Paths{Root: "/c"}
	ops := p.FinalTx(HeldVersions{Self: "n1-0000000000000001-n_0000000001", Fence: 4, Current: 5}, Fence{Term: 8, State: FenceReleased})
	if again, err := DecodeTx(EncodeTx(ops)); err != nil || !reflect.DeepEqual(again, ops) {
		t.Errorf("%+v, %v", again, err)
	}
	if text := EncodeTx(nil); text != nil {
		t.Errorf("no transaction is %q", text)
	}
	if ops, err := DecodeTx(nil); err != nil || ops != nil {
		t.Errorf("no text is %+v, %v", ops, err)
	}
	for _, text := range []string{"{}", "x", `[{"kind":7,"path":"/c"}]`, `[{"kind":-1,"path":"/c"}]`, `[{"kind":2,"path":"c"}]`, `[{"kind":2,"path":"/c","acl":1}]`} {
		if ops, err := DecodeTx([]byte(text)); err == nil || ops != nil {
			t.Errorf("%s is %+v", text, ops)
		}
	}
}

// Brief describes each of the operations. A run of writes of one znode is a single one: "set /c/leader@4..7".
func Brief(ops []Op, describe func(Op) string) (all []string) {
	for i := 0; i < len(ops); i++ {
		first := ops[i]
		text := describe(first)
		for i+1 < len(ops) && follows(ops[i], ops[i+1]) {
			i++
		}
		if last := ops[i]; last.Version != first.Version {
			text += fmt.Sprintf("..%d", last.Version)
		}
		all = append(all, text)
	}
	return all
}

// follows reports whether an operation writes the znode again that the one before it has written.
func follows(before, op Op) bool {
	return before.Kind == OpSet && op.Kind == OpSet && op.Path == before.Path && op.Version == before.Version+1
}

// plain describes an operation.
func plain(op Op) string { return fmt.Sprintf("%s %s@%d", op.Kind, op.Path, op.Version) }
