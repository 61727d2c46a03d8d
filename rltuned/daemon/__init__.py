"""The live loop: observe, decide, apply, report; and what it leaves behind for people to see."""
