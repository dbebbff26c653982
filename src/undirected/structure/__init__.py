"""Structure learners: tables in, networks out."""
