"""OSG (Middleware 2016): online shuffle grouping."""
