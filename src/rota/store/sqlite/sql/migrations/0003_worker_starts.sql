-- When a worker was ordered: those of a later generation join in the middle of an attempt. Workers
-- from before this column have none.
ALTER TABLE workers ADD COLUMN ordered_s REAL;
