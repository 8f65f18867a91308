module zkelectd/deploy/check

go 1.26
