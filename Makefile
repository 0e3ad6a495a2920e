# Each target is a command of tests/dev.py: `make help` lists them. ARGS and DB are passed on, e.g.
# make test DB=mysql ARGS="tests/test_setup.py -k zone"
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TARGETS := help demo test test-all test-django test-fast lint types docs messages bench peers mutants matrix schema scenario servers release
.PHONY: $(TARGETS)
$(TARGETS):
	@$(or $(PYTHON),$(error install Python 3.11 or newer)) tests/dev.py $@ $(if $(DB),--db $(DB)) $(if $(filter scenario,$@),$(NAME)) $(ARGS)
