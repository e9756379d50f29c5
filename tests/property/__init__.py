"""What always holds, over inputs that Hypothesis makes up; no network, no sleep."""
