# The default location of Go, if it is not on the PATH.
export PATH := $(PATH):/usr/local/go/bin

# What is checked and tested is compiled as what is shipped, static and without local paths, so that nothing is compiled twice: only the
# race detector needs C.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(shell PATH='$(PATH)' go env GOFLAGS)) -trimpath

.PHONY: build image dist deb rpm repo reproducible package-test systemd-test release-check vulncheck verify sign compose-test deploy-check recipes-test clients-test vm-test versions-test fence-test demo test alerts lint units bench sim fuzz faults outages kills races mutants ci clean help

build: ## build bin/zkelectd, a static binary
	go build -buildvcs=auto -o bin/zkelectd ./cmd/zkelectd

image: build bin/demo ## build the image zkelectd:dev (from scratch) with Docker, and the work of deploy/docker-compose.yml
	docker build --quiet --file deploy/Dockerfile --tag zkelectd:dev .

dist: ## build the binaries, .deb, .rpm and SBOM of the last commit for amd64 and arm64 in dist/
	scripts/dist.sh

deb: ## build the .deb of the last commit for this machine in dist/deb/
	DIST=dist/deb ARCHS=$$(go env GOARCH) KINDS=deb scripts/dist.sh

rpm: ## build the .rpm of the last commit for this machine in dist/rpm/
	DIST=dist/rpm ARCHS=$$(go env GOARCH) KINDS=rpm scripts/dist.sh

repo: ## make signed repositories for apt and dnf in dist/repo from the packages in dist (KEY=secret key of gpg)
	scripts/repo.sh

reproducible: ## build dist twice, in different environments, and compare
	scripts/check-reproducible.sh --keep

package-test: ## install, run and remove the packages in a throwaway copy of this machine
	scripts/test-package.sh

systemd-test: ## test the units under a real systemd in a throwaway copy of this machine
	scripts/test-systemd.sh

compose-test: build bin/demo ## test the Compose files of deploy/ with real containers (COMPOSE="docker compose" or docker-compose)
	scripts/test-compose.sh

deploy-check: bin/demo ## check the files of deploy/ for Compose and Kubernetes, and test SBOM and signing of releases
	go -C deploy/check vet ./...
	go -C deploy/check test -count=1 ./... # no cached results: the files under test are not part of the module
	go -C deploy/package/sbom vet ./...
	go -C deploy/package/sbom test ./...
	scripts/test-sign.sh

.PHONY: bin/demo
bin/demo:
	go build -o bin/demo ./demo

demo: build bin/demo ## run four daemons on two sites that elect, hand over, fail and recover (DEMO_ARGS=--once ends after the tour)
	@scripts/install-zookeeper.sh
	bin/demo $(DEMO_ARGS)

# The tests that take longest, in order; go test starts them first.
LONGEST := $(addprefix zkelectd/internal/,host test/faults guard test/clients zk test/arch)

# Tests without the race detector. Those of the commands start the program thousands of times, each five times as expensive with it,
# so only a release runs them with it; the daemon runs with it in the tests of faults. A schedule of the simulation has one goroutine.
RACELESS := zkelectd/internal/cli zkelectd/internal/test/sim

# How many packages are tested at once: one more than there are processors, as most tests wait for times of the protocol.
PACKAGES := $(shell expr $$(nproc) + 1)

test: alerts ## run all tests, with real ZooKeeper servers; with the race detector, except those of the commands
	@scripts/install-tools.sh
	@scripts/install-dbus.sh
	@scripts/install-kerberos.sh
	@scripts/install-zookeeper.sh
	@scripts/install-chromium.sh
	go test -timeout 20m ./internal/cli
	CGO_ENABLED=1 go test -race -p $(PACKAGES) -timeout 24m $(LONGEST) $$(go list ./... | grep -vxF $(RACELESS:%=-e %) $(LONGEST:%=-e %))
	go test -timeout 20m ./internal/test/sim $(SIM_FROM)

races: ## test the commands with the race detector
	CGO_ENABLED=1 go test -race -timeout 60m ./internal/cli

alerts: ## test with promtool that each alert fires when it should, and only then
	@scripts/install-prometheus.sh
	promtool check config deploy/prometheus/prometheus.yml
	promtool test rules deploy/prometheus/alerts_test.yml

FAULTS ?= 200

sim: FOR ?= 10m
sim: ## simulate the protocol with random schedules (FOR=10m), and with each check removed, which a test must notice
	go test ./internal/test/sim -count=1 -v -timeout 0 -sim.for=$(FOR) $(SIM_ARGS)

fuzz: FOR ?= 60s
fuzz: ## run all fuzz tests (FOR=60s in total); a failing input is kept as a test
	FOR=$(FOR) scripts/fuzz.sh

faults: ## inject faults into real daemons and servers (FAULTS=200), and check that two leaders never work at the same time
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	go test ./internal/test/faults -count=1 -v -timeout 0 -skip '^TestOutages' -faults.n=$(FAULTS) # see outages

OUTAGES ?= 60

outages: ## let all servers of groups in failsafe mode be away (OUTAGES=60), with further faults
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	go test ./internal/test/faults -count=1 -v -timeout 0 -run '^TestOutages$$' -faults.outages=$(OUTAGES)

recipes-test: ## run the recipes of docs/recipes with real servers and programs (RECIPE=cron-job for one of them)
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	@scripts/install-recipes.sh
	go test ./internal/test/recipes -count=1 -v -timeout 30m -run "Real/^$(RECIPE)" -recipes.real

PAUSES ?= 1000

clients-test: ## pause an application in each language for longer than its lease (PAUSES=1000)
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	go test ./internal/test/clients -count=1 -v -timeout 1h -clients.pauses=$(PAUSES)

vm-test: ## reset virtual machines by their watchdog device, and fence one from another, with QEMU and Debian's kernel (VM_ARGS='-vmtest.n 1 -run Real/kernel')
	@scripts/install-zookeeper.sh
	@packages=$$(scripts/install-vm.sh) && go test ./internal/test/vmtest -count=1 -v -timeout 2h -vmtest.real "$$packages" $(VM_ARGS)

versions-test: build bin/demo ## test with other versions of ZooKeeper, from Debian's suites (SUITES="bullseye sid")
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	scripts/test-versions.sh

fence-test: ## test with the real fence agents of ClusterLabs, which it installs
	@scripts/install-fence-agents.sh
	go test ./internal/work/fencer -count=1 -v -run TestRealAgents -fencer.real

kills: ## test that kills come in time, without the race detector and other tests beside
	go test ./internal/guard -count=1

mutants: ## mutation testing of the core (MUTANTS=200 SEED=7: a sample of so many in each package)
	@scripts/install-zookeeper.sh
	go run ./scripts/mutants -n $(or $(MUTANTS),0) -seed $(or $(SEED),1) $(MUTANTS_ARGS)

units: ## check the units with systemd-analyze: settings and exposure
	scripts/check-units.sh

verify: ## verify the downloaded modules against go.sum
	scripts/verify-modules.sh

vulncheck: ## check the binary for known vulnerabilities, if the database can be reached
	scripts/vulncheck.sh

sign: ## sign dist/SHA256SUMS with minisign (KEY=secret key file, PUBLIC=public key file)
	scripts/sign.sh

lint: ## vet, staticcheck (staticcheck.conf), revive (scripts/revive.toml), go-errorlint, and formatting
	go vet ./...
	go vet -tags gen ./internal/cli
	go vet -tags record ./internal/group
	go tool -modfile=scripts/lint.mod staticcheck ./...
	go tool -modfile=scripts/lint.mod revive -config scripts/revive.toml -formatter friendly ./...
	go tool -modfile=scripts/lint.mod go-errorlint ./...
	@unformatted=$$(gofmt -l client cmd demo internal bench deploy scripts); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi

bench: build ## measure handover, failover, traffic and footprint
	@scripts/install-zookeeper.sh
	go run ./bench $(BENCH_ARGS)

# A change is not refused for what an older one broke: CI draws the same inputs each time, and make test draws new ones. Nothing runs
# twice: a test that fails once is a bug of the test or of the product.
ci: export RAPID_SEED = 1
ci: export SIM_FROM = -sim.from=1
ci: verify lint units deploy-check test ## run everything that CI runs, with fixed seeds
	$(MAKE) -j2 --output-sync=target sim demo FOR=40s SIM_ARGS='-run ^TestSimulation$$$$ $(SIM_FROM)' DEMO_ARGS=--once # make test runs the rest of sim
	$(MAKE) compose-test

release-check: vulncheck reproducible fuzz package-test systemd-test recipes-test clients-test vm-test versions-test fence-test outages mutants kills races ## run the additional tests for a release: needs root, overlays and control groups

clean: ## remove bin and dist
	rm -rf bin dist

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
