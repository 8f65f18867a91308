# Go where its installer puts it, if it is not on the PATH.
export PATH := $(PATH):/usr/local/go/bin

.PHONY: build image dist reproducible package-test systemd-test release-check vulncheck verify sign compose-test deploy-check demo test alerts lint units bench sim fuzz faults mutants ci clean help

build: ## build bin/zkelectd, one static binary
	CGO_ENABLED=0 go build -trimpath -o bin/zkelectd ./cmd/zkelectd

image: build ## build the image zkelectd:dev, from scratch, with the Docker engine of this machine
	docker build --quiet --file deploy/Dockerfile --tag zkelectd:dev .

dist: ## build the binaries, .deb, .rpm and SBOM of the last commit for amd64 and arm64 below dist/
	scripts/dist.sh

reproducible: ## make dist twice, in different surroundings, and compare
	scripts/check-reproducible.sh --keep

package-test: ## install the packages in a throwaway copy of this machine, run what they bring, and remove them
	scripts/test-package.sh

systemd-test: ## boot a real systemd in a throwaway copy of this machine, and try the units there
	scripts/test-systemd.sh

compose-test: build ## run deploy/docker-compose.yml: a leader, a site cut off, healed, down (COMPOSE="docker compose" or docker-compose)
	scripts/test-compose.sh

deploy-check: ## read the files of deploy/ as Compose and Kubernetes do, and try how releases are described and signed
	go -C deploy/check vet ./...
	@staticcheck=$$(go tool -n staticcheck) && cd deploy/check && "$$staticcheck" ./...
	@golangci=$$(go tool -n -modfile=scripts/lint.mod golangci-lint) && cd deploy/check && "$$golangci" run ./...
	go -C deploy/check test -count=1 ./... # what it reads is outside of its module, so nothing of it is cached
	@golangci=$$(go tool -n -modfile=scripts/lint.mod golangci-lint) && cd deploy/package/sbom && "$$golangci" run ./...
	go -C deploy/package/sbom vet ./...
	go -C deploy/package/sbom test ./...
	scripts/test-sign.sh

demo: build ## watch four daemons on two sites elect, hand over, fail and recover (DEMO_ARGS=--once ends after the tour)
	@scripts/install-zookeeper.sh
	bin/zkelectd demo $(DEMO_ARGS)

test: alerts ## run every test, against real ZooKeeper servers, with the race detector
	@scripts/install-tools.sh
	@scripts/install-dbus.sh
	@scripts/install-zookeeper.sh
	@scripts/install-chromium.sh
	go test -race -timeout 20m $$(go list ./... | grep -v /internal/sim)
	go test -run TestMemoryLimit ./cmd/zkelectd # at a memory limit, where the race detector has no room
	go test ./internal/sim # one goroutine a schedule: there is no race to detect

alerts: ## have Prometheus' own tool check the alerts, and try each: that it fires when it should, and only then
	@scripts/install-prometheus.sh
	promtool check config deploy/prometheus/prometheus.yml
	promtool test rules deploy/prometheus/alerts_test.yml

FAULTS ?= 200

sim: FOR ?= 10m
sim: ## try new schedules of the protocol for as long as told (FOR=10m), then take each check away and see it noticed
	go test ./internal/sim -count=1 -v -timeout 0 -sim.for=$(FOR) $(SIM_ARGS)

fuzz: FOR ?= 60s
fuzz: ## feed every decoder with random input for as long as told in all (FOR=60s); a finding is kept as a test
	FOR=$(FOR) scripts/fuzz.sh

faults: ## inject faults into real daemons on a real ensemble (FAULTS=200), and read in the ledger that no two worked at once
	@scripts/install-tools.sh
	@scripts/install-zookeeper.sh
	go test ./internal/faults -count=1 -v -timeout 0 -faults.n=$(FAULTS)

mutants: ## change the core in small ways, one at a time, and see each noticed by a test (MUTANTS=200 SEED=7: so many of each package)
	@scripts/install-zookeeper.sh
	go run ./scripts/mutants -n $(or $(MUTANTS),0) -seed $(or $(SEED),1) $(MUTANTS_ARGS)

units: ## have systemd check the units: what it does not know, and what they leave open
	scripts/check-units.sh

verify: ## make sure that the modules are those that go.sum names
	scripts/verify-modules.sh

vulncheck: ## look for known vulnerabilities in what the binary calls, if the Go project's database can be reached
	scripts/vulncheck.sh

sign: ## sign dist/SHA256SUMS with minisign (KEY=secret key file, PUBLIC=public key file)
	scripts/sign.sh

lint: ## vet, staticcheck, golangci-lint (.golangci.yml) and formatting
	go vet ./...
	go vet -tags gen ./cmd/zkelectd
	go tool staticcheck ./...
	go tool -modfile=scripts/lint.mod golangci-lint run ./...
	@unformatted=$$(gofmt -l cmd internal bench deploy scripts); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi

bench: build ## measure handover, failover, traffic and footprint against this machine's own floor
	@scripts/install-zookeeper.sh
	go run ./bench $(BENCH_ARGS)

ci: verify lint units deploy-check test ## what CI runs
	$(MAKE) sim FOR=60s SIM_ARGS='-run ^TestSimulation$$$$' # the rest was run by make test
	$(MAKE) fuzz FOR=60s
	$(MAKE) faults FAULTS=40
	$(MAKE) demo DEMO_ARGS=--once
	$(MAKE) compose-test

release-check: vulncheck reproducible package-test systemd-test mutants ## what a release has to pass besides: needs root, overlays and control groups

clean: ## remove what was built
	rm -rf bin dist

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
