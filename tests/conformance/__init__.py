"""What every engine has to do, as scenarios that are run on each of them."""
