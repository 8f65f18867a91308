// Mutants runs mutation tests: it makes one small change to the code at a time, runs the tests, and lists the changes
// that no test notices. Some of those are equivalent to the original. It fails if less than 90% of the mutants of a
// package are killed.
//
//	go run ./scripts/mutants                       # the packages that take minutes
//	go run ./scripts/mutants -n 200 -seed 7 internal/guard
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	most    = flag.Int("n", 0, "try at most `N` mutants of each package, chosen by -seed; 0: all")
	seed    = flag.Uint64("seed", 1, "which mutants -n chooses")
	jobs    = flag.Int("jobs", runtime.GOMAXPROCS(0), "how many mutants to try in parallel")
	only    = flag.String("only", "", "try the mutants whose description matches `REGEXP`")
	tests   = flag.String("tests", "", "of a package's own tests, run those that match `REGEXP`")
	quick   = flag.Bool("quick", false, "run a package's own tests only")
	dryRun  = flag.Bool("list", false, "print the mutants without trying them")
	verbose = flag.Bool("v", false, "print every mutant, and how the tests fail")
)

// goal is the share of the mutants of a package that tests have to kill.
const goal = 0.9

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args()); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	var reports []report
	for _, t := range chosen {
		r, err := t.run(ctx, root)
		if err != nil {
			return fmt.Errorf("%s: %w", t.pkg, err)
		}
		reports = append(reports, r)
	}
	return summarize(reports)
}

// choose returns the targets with these names; without names, all targets that need not be named.
func choose(names []string) ([]target, error) {
	var out []target
	for _, t := range targets {
		if len(names) == 0 && !t.named {
			out = append(out, t)
		}
	}
	for _, name := range names {
		name = filepath.Clean(name)
		i := slices.IndexFunc(targets, func(t target) bool { return t.pkg == name })
		if i < 0 {
			return nil, fmt.Errorf("no such target: %s (they are in scripts/mutants/targets.go)", name)
		}
		out = append(out, targets[i])
	}
	return out, nil
}

// A report has the results of the mutants of one package.
type report struct {
	pkg             string
	tried, own, all int // mutants that were tried, killed by the tests of the package, killed by any test
	survivors       []mutant
	took            time.Duration
}

func (r report) score() float64 { return float64(r.all) / float64(max(1, r.tried)) }

// run tries the mutants of t.
func (t target) run(ctx context.Context, root string) (report, error) {
	r := report{pkg: t.pkg}
	began := time.Now()
	mutants, err := t.mutants(root)
	if err != nil {
		return r, err
	}
	mutants = sample(mutants)
	if *dryRun {
		for _, m := range mutants {
			fmt.Println(m)
		}
		return r, nil
	}
	suites := t.suites()
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o755); err != nil { // some tests run as another user
		return r, err
	}
	sc := newSchema(root, scratch, t.pkg, mutants)
	for i := range suites {
		if err := (&bench{root, scratch}).calibrate(ctx, sc, &suites[i]); err != nil {
			return r, err
		}
	}
	fmt.Printf("%s: %d mutants\n", t.pkg, len(mutants))
	err = each(root, scratch, len(mutants), func(b *bench, i int) error {
		v, by, err := b.try(ctx, sc, i, suites)
		if err == nil {
			r.add(mutants[i], v, by)
		}
		return err
	})
	r.took = time.Since(began)
	slices.SortFunc(r.survivors, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.start, b.start))
	})
	return r, err
}

var mu sync.Mutex // guards reports, and keeps lines whole

// add counts one mutant.
func (r *report) add(m mutant, v verdict, by string) {
	mu.Lock()
	defer mu.Unlock()
	if v == notCompiled {
		return
	}
	r.tried++
	switch {
	case v == killed && by == r.pkg:
		r.own++
		fallthrough
	case v == killed:
		r.all++
		if *verbose {
			fmt.Printf("killed by %s: %s\n", by, m)
		}
	default:
		fmt.Printf("survived: %s\n", m)
		r.survivors = append(r.survivors, m)
	}
}

// sample returns the mutants to try, in their order.
func sample(all []mutant) []mutant {
	match := regexp.MustCompile(*only)
	all = slices.DeleteFunc(all, func(m mutant) bool { return !match.MatchString(m.String()) })
	if *most > 0 && *most < len(all) {
		rng := rand.New(rand.NewPCG(*seed, 0))
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:*most]
	}
	return all
}

// each calls f for every mutant by its index, several at a time, each with a directory of its own, until one returns an
// error.
func each(root, scratch string, n int, f func(b *bench, i int) error) error {
	var wg sync.WaitGroup
	work := make(chan int)
	errs := make(chan error, *jobs)
	done := make(chan struct{})
	var once sync.Once
	for i := range *jobs {
		wg.Go(func() {
			dir := filepath.Join(scratch, fmt.Sprint(i))
			err := os.Mkdir(dir, 0o755)
			for i := range work {
				if err == nil {
					err = f(&bench{root, dir}, i)
				}
				if err != nil {
					errs <- err
					once.Do(func() { close(done) })
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case work <- i:
			continue
		case <-done:
		}
		break
	}
	close(work)
	wg.Wait()
	close(errs)
	return <-errs
}

// summarize prints the survivors and a table, and returns an error if there are low scores.
func summarize(reports []report) error {
	for _, r := range reports {
		for _, m := range r.survivors {
			fmt.Println(m.key())
		}
	}
	if *dryRun {
		return nil
	}
	bad := 0
	fmt.Printf("\n%-28s %8s %8s %8s %8s %7s %8s\n", "package", "mutants", "killed", "by own", "survived", "score", "took")
	for _, r := range reports {
		fmt.Printf("%-28s %8d %8d %8d %8d %6.1f%% %8s\n", r.pkg, r.tried, r.all, r.own, len(r.survivors), 100*r.score(),
			r.took.Round(time.Second))
		if *only == "" && r.score() < goal {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("less than %.0f%% of the mutants of %d packages are killed: kill the survivors with tests",
			100*goal, bad)
	}
	return nil
}
