select count(*), sum(length('item ' || i * 31 % 10007)) from generate_series(1, 700000) i where 'item ' || i like '%7%';
select i * 7919::bigint % 5000 as owner, count(*), avg(i * 0.37) as mean from generate_series(1, 300000) i group by 1 order by mean desc, owner limit 3;
select count(*) from generate_series(1, 200000) a join generate_series(1, 200000) b on a * 3 = b + 1;
select md5(i::text) as sum from generate_series(1, 100000) i order by 1 limit 3;
