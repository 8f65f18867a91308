package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/test/testhelper"
)

var guardClient *guard.Client

// leaveOpen is the Close of the guard: the session of a test that the guard ends is left to expire.
func leaveOpen(context.Context, guard.Credentials) (string, error) {
	return "", errors.New("the guard of the tests closes no session")
}

func closeGuard() error {
	guardClient.Close()
	return nil
}

// The test process is the daemon of a guard, as in production.
func TestMain(m *testing.M) {
	guard.MaybeRunKeeper()
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		notifyWarm(socket)
	}
	if os.Getenv("GUARDED") == "" {
		os.Setenv("GUARDED", "yes")
		status, err := guard.Run(guard.Options{Path: "/proc/self/exe", Argv: os.Args, Log: slog.Default(), Close: leaveOpen})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
	var err error
	if guardClient, err = guard.Connect(guard.SocketFD, slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testhelper.RunMain(m, closeGuard)
}

// notifyWarm is work that waits for the file warm, and then notifies.
func notifyWarm(socket string) {
	os.WriteFile("pids", fmt.Append(nil, os.Getpid()), 0o600)
	wait := time.NewTicker(10 * time.Millisecond)
	for _, err := os.Stat("warm"); err != nil; _, err = os.Stat("warm") {
		<-wait.C
	}
	c, err := net.Dial("unixgram", socket)
	if err == nil {
		_, err = c.Write([]byte("READY=1"))
	}
	if err != nil {
		panic(err)
	}
	select {}
}
