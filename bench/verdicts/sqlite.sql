-- The same work each time: 600,000 rows, an index, a join, groups and sorts.
create table item(id integer primary key, owner integer, name text, price real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 600000)
  insert into item select i, i * 7919 % 5000, 'item ' || (i * 31 % 10007), i * 0.37 % 101 from n;
create index by_owner on item(owner, price);
select count(*), sum(length(name)), round(sum(price)) from item where name like '%7%';
select owner, count(*), round(avg(price), 2) as mean from item group by owner order by mean desc, owner limit 3;
select count(*) from item a join item b on a.owner = b.owner and a.price < b.price where a.owner % 7 = 0;
select name, count(*) from item group by name order by count(*) desc, name limit 3;
