"""Early answers: a query over ever more of its rows, each answer exactly that of the rows there."""
